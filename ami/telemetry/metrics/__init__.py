"""The figures as Prometheus reads them: `/metrics`, from the snapshot that the page shows and the counted totals."""
