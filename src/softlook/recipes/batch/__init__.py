"""Batch inference over a folder of Parquet files, in this process or on Ray."""

from softlook.recipes.batch.job import BatchResult as BatchResult
from softlook.recipes.batch.job import predict_folder as predict_folder
from softlook.recipes.batch.row_predictor import BatchParams as BatchParams
