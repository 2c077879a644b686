"""Where media and results are stored, and what is read from there."""

from ami.environment.declaration import Names, Variables, variable


class Files(Variables):
    """Files"""

    antenna_s3_bucket: str = variable(
        "",
        "The bucket for media and results; required when web and workers run on more than one machine.",
        example="antenna",
    )
    antenna_s3_endpoint_url: str = variable(
        "",
        "The object storage's address; not set: Amazon's.",
        example="https://objects.example.org",
        schemes=("http", "https"),
    )
    aws_access_key_id: str = variable("", "The bucket's access key.", secret=True, example="antenna")
    aws_secret_access_key: str = variable("", "The bucket's secret key.", secret=True)
    # S3 signs for a week at most.
    antenna_file_url_seconds: int = variable(
        3600, "The minimum seconds that a signed link to a file works, in answers to users.", low=60, high=604_800
    )
    antenna_media_root: str = variable(
        "",
        "The folder of media without object storage; in containers the volume `files`, set by the image.",
        example="media",
        by_image=True,
    )
    antenna_results_root: str = variable(
        "",
        "The folder of posted results without object storage; in containers the volume `files`, set by the image.",
        example="media-results",
        by_image=True,
    )
    # From 89.5 megapixels Pillow warns, from 179 it refuses by itself.
    antenna_max_megapixels: int = variable(
        89,
        "The largest capture to decode, in millions of pixels; one beyond it or a process's memory gets no crops.",
        low=1,
        high=178,
    )
    antenna_local_source_roots: Names = variable(
        (), "Folders allowed for storage sources with a file:// endpoint, separated by commas."
    )
