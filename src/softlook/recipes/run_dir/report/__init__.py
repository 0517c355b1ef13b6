"""HTML report of a run."""

from softlook.recipes.run_dir.report.data import write_data_summary as write_data_summary
from softlook.recipes.run_dir.report.formatting import format_score as format_score
from softlook.recipes.run_dir.report.formatting import format_score_name as format_score_name
from softlook.recipes.run_dir.report.page import write_report as write_report

__all__ = ["format_score", "format_score_name", "write_data_summary", "write_report"]
