"""``python -m ami.jqueue import SOURCE TARGET``: import a queue in one file into a journal, or back."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from ami.environment.url_login import masked_url
from ami.jqueue.adapters.storage.bucket import BucketStorage
from ami.jqueue.adapters.storage.gcs import GCSStorage
from ami.jqueue.adapters.storage.local_import import import_queue
from ami.jqueue.adapters.storage.s3 import S3Storage
from ami.jqueue.domain.errors import JQueueError

ABOUT = """\
Import the jobs of SOURCE into TARGET, which must not exist: a file with a queue in JSON becomes a folder with a
journal, and a folder with a journal becomes a file. An object in a bucket becomes a journal below its own key.

Stop the programs that use SOURCE first. From then on it raises an error that names TARGET. The content of a file or
object is kept as SOURCE.imported. After an interruption, repeat the command.

Exit code 0: imported, also by an earlier call; 1: the disk or bucket failed; 2: cannot be imported."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m ami.jqueue", description="Manage queues of ami.jqueue.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser(
        "import",
        help="import a queue in one file or object into a journal, or back",
        description=ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("source", metavar="SOURCE", help="file, folder, s3://BUCKET/KEY or gs://BUCKET/NAME")
    command.add_argument("target", metavar="TARGET", nargs="?", help="new folder or file; none for a bucket")
    command.add_argument("--endpoint-url", metavar="URL", help="service that speaks the protocol of S3")
    command.add_argument("--region", metavar="NAME", help="region of the S3 bucket")
    try:
        print(_import(parser.parse_args(argv)))
    except (ValueError, JQueueError, OSError) as error:
        print(f"import: {error}", file=sys.stderr)
        return 1 if _is_failure(error) else 2
    return 0


def _import(options: argparse.Namespace) -> str:
    """Import, and return what to print. Raises ValueError, JQueueError, OSError."""
    source, target = options.source, options.target
    if "://" in source:
        if target is not None:
            raise ValueError("a bucket takes no TARGET: the journal lies below the object's own key")
        count, target = _bucket(options).import_blob(), f"{source}/"
    elif target is None:
        raise ValueError("TARGET is missing: name a new folder for a file, or a new file for a folder")
    else:
        count = import_queue(Path(source), Path(target))
    jobs = "the jobs, by an earlier call," if count is None else f"{count:,} job{'' if count == 1 else 's'}"
    return f"Imported {jobs} from {source} into {target}"


def _bucket(options: argparse.Namespace) -> BucketStorage:
    url = urlsplit(options.source)
    bucket, key = url.netloc, url.path.strip("/")
    if not bucket or not key:
        raise ValueError(f"{masked_url(options.source)} is not a URL like s3://BUCKET/KEY or gs://BUCKET/NAME")
    match url.scheme:
        case "s3":
            return S3Storage(bucket, key, region_name=options.region, endpoint_url=options.endpoint_url, journal=True)
        case "gs":
            return GCSStorage(bucket, key, journal=True)
    raise ValueError(f"{url.scheme} is not a service: use s3 or gs")


def _is_failure(error: BaseException) -> bool:
    """Whether the disk or the service failed; what was asked for is wrong otherwise."""
    cause = getattr(error, "cause", None)
    return isinstance(error, OSError) or (cause is not None and not isinstance(cause, ValueError))


if __name__ == "__main__":
    sys.exit(main())
