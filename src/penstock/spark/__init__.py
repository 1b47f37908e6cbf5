"""The aggregation as a Spark job: one streaming query from landed files to the store."""
