"""A job that brings data into a keyspace, described by a TOML file; docs/spark.md is its guide.

The code that only reads the file (`settings`) does not need Spark, so a mistake in the file shows
before anything is started. `run` does the work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringpop_py.base.lazy import lazily

if TYPE_CHECKING:
    from ringpop_py.spark.pipeline.run import PipelineSummary as PipelineSummary
    from ringpop_py.spark.pipeline.run import run_pipeline as run_pipeline
    from ringpop_py.spark.pipeline.settings import Pipeline as Pipeline
    from ringpop_py.spark.pipeline.settings import load_pipeline as load_pipeline
else:
    __getattr__, __dir__, __all__ = lazily(
        __name__,
        {
            "spark.pipeline.run": "PipelineSummary run_pipeline",
            "spark.pipeline.settings": "Pipeline load_pipeline",
        },
    )
