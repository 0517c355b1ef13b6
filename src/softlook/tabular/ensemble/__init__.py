"""Cross-fitted ensembles of attention models, boosted trees and linear models."""
