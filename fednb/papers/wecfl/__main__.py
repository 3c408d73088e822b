"""Count the classes of the tables' clients: ``python -m fednb.papers.wecfl``.

Writes ``classes.json`` and ``majority.json`` into ``book/results/wecfl``; it takes
seconds and needs the data.
"""

from ..common import results
from .deals import write, write_majority

if __name__ == "__main__":
    write(results("wecfl") / "classes.json")
    write_majority(results("wecfl") / "majority.json")
