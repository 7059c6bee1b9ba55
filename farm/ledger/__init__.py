"""The ledger: SQLite rows for every unit of work, written before it starts and when it ends."""

from farm.ledger.ledger import Campaign, Ledger, Unit
from farm.ledger.unit_key import UnitKey

__all__ = ["Campaign", "Ledger", "Unit", "UnitKey"]
