"""Files beside a station's pictures that are none: hidden ones, thumbnails, trash, unfinished copies."""

import re

HIDDEN = "hidden file or folder"
THUMBNAIL = "thumbnail or index of a file server"
TRASH = "in a trash folder"
SYSTEM = "in a folder of the operating system or file server"
UNFINISHED = "unfinished copy or file beside a picture"
OTHER_KIND = "file of another kind"
EMPTY = "empty file"

#: Folders by their names in small letters: Synology, QNAP, Windows, Samba, macOS, Linux, Android, NetApp.
FOLDERS = {
    "@eadir": THUMBNAIL,
    "@__thumb": THUMBNAIL,
    "thumbnails": THUMBNAIL,
    "thumbnail": THUMBNAIL,
    "thumbs": THUMBNAIL,
    "$recycle.bin": TRASH,
    "#recycle": TRASH,
    "@recycle": TRASH,
    "recycler": TRASH,
    "recycled": TRASH,
    "recycle": TRASH,
    "recycle bin": TRASH,
    "recycle.bin": TRASH,
    "trash": TRASH,
    "trashbox": TRASH,
    "network trash folder": TRASH,
    "files_trashbin": TRASH,
    "lost+found": SYSTEM,
    "lost.dir": SYSTEM,
    "system volume information": SYSTEM,
    "__macosx": SYSTEM,
    "temporary items": SYSTEM,
    "#snapshot": SYSTEM,
    "~snapshot": SYSTEM,
    "@recently-snapshot": SYSTEM,
    "@sharesnap": SYSTEM,
    "@tmp": SYSTEM,
}
CHECKED_DISK = re.compile(r"found\.[0-9]{3}")
FILES = {"thumbs.db", "ehthumbs.db", "desktop.ini", "picasa.ini"}
#: A copy that is not whole, or a file about the picture whose name it begins with.
ENDINGS = re.compile(
    r"\.(part|partial|filepart|crdownload|download|tmp|temp|bak|swp|thm)$|~$|_original$|\.(jpe?g|png|tiff?|webp)\.[a-z][a-z0-9_-]*$"
)
#: A copy that Syncthing, Nextcloud or Dropbox named after the time of a conflict.
CONFLICT = re.compile(r"\.sync-conflict-|_conflict-[0-9]{8}|\(.*conflicted copy")
OTHER_ENDINGS = (
    *(".txt", ".csv", ".tsv", ".json", ".xml", ".html", ".log", ".md", ".pdf", ".xlsx", ".ini", ".db", ".zip", ".gz"),
    *(".mp4", ".avi", ".mov", ".mkv", ".h264", ".h265", ".webm", ".mpg", ".mpeg", ".wmv", ".3gp", ".m4v", ".lrv"),
    *(".wav", ".mp3", ".flac", ".ogg", ".m4a", ".aac", ".yaml", ".yml", ".toml", ".tar", ".7z", ".rar", ".sqlite"),
)
PICTURE_ENDINGS = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp")

#: The first bytes of pictures: JPEG, PNG, TIFF, GIF. WebP and HEIF have their names further on.
FIRST_BYTES = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"II*\0", b"MM\0*", b"GIF87a", b"GIF89a")
LATER_BYTES = {8: b"WEBP", 4: b"ftyp"}


def litter_of(path: str, size: int) -> str:
    """Return why the file at a path below the station's folder is no capture; empty if it can be one. Size in bytes."""
    *folders, name = path.lower().split("/")
    for folder in folders:
        if reason := FOLDERS.get(folder) or (TRASH if folder.startswith(".trash") else ""):
            return reason
        if CHECKED_DISK.fullmatch(folder):
            return SYSTEM
        if folder.startswith("."):
            return THUMBNAIL if "thumb" in folder else HIDDEN
    if name in FILES:
        return THUMBNAIL
    if name.startswith((".", "~$")):
        return HIDDEN
    if CONFLICT.search(name) or (ENDINGS.search(name) and not name.endswith(PICTURE_ENDINGS)):
        return UNFINISHED
    if name.endswith(OTHER_ENDINGS):
        return OTHER_KIND
    return "" if size else EMPTY


def is_picture(head: bytes) -> bool:
    """Whether a file that begins with ``head`` is a picture, by its first bytes."""
    return head.startswith(FIRST_BYTES) or any(head.startswith(name, place) for place, name in LATER_BYTES.items())
