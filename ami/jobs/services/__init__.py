"""Operations on jobs, their images and their results; one noun per module."""
