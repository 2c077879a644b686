"""Operations on pipelines, processing services and results; one noun per module."""
