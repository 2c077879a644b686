"""The text form of a bounding box, for unique constraints."""

from collections.abc import Sequence

NULL_KEY = "null"


def bbox_key(bbox: Sequence[float] | None) -> str:
    """Return ``"x1,y1,x2,y2"`` in pixels with two decimals, or ``"null"`` for the null marker.

    Boxes are floats on the wire and JSON in the database; neither compares reliably, two decimals of a pixel do.

    Raises:
        ValueError: not exactly four finite numbers.
    """
    if bbox is None:
        return NULL_KEY
    numbers = [float(number) for number in bbox]
    if len(numbers) != 4 or any(number != number or abs(number) > 1e9 for number in numbers):
        raise ValueError(f"bbox must be four finite numbers [x1, y1, x2, y2], not {list(bbox)!r}.")
    # Adding zero turns -0.0 into 0.0: the same place, printed differently.
    return ",".join(f"{round(number, 2) + 0.0:.2f}" for number in numbers)
