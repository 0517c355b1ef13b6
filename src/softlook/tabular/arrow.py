"""pyarrow's functions over whole arrays. They are made when it is imported, so no type checker sees them."""

from typing import Any

from pyarrow import compute

pc: Any = compute
