"""What our containers are made from and where their variables and secrets lie; the compose files read these."""

from ami.environment.declaration import Variables, variable


class Image(Variables):
    """The containers of Antenna's processes"""

    antenna_image: str = variable("antenna:local", "The image of web, workers, beat, Flower and setup.")
    antenna_version: str = variable(
        "unknown",
        "The version: in the image's label and environment when it is built here (`make up` sets it from `git "
        "describe`), in the workers' reports, the metrics and Sentry.",
        by_image=True,
    )
    antenna_env_file: str = variable(".env", "The file with the variables of Antenna's processes: this one.")
    antenna_secrets_folder: str = variable(
        "./compose/secrets", "The folder that the compose files mount at /run/secrets."
    )
