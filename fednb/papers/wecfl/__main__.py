"""Count the classes of the tables' clients: ``python -m fednb.papers.wecfl``.

Writes ``book/results/wecfl/classes.json``; it takes seconds and needs the data.
"""

from ..common import results
from .deals import write

if __name__ == "__main__":
    write(results("wecfl") / "classes.json")
