"""The log of how input was read, which the command line always shows, apart from other messages.

What changes the values or the columns that are learned from is a warning: those reach a user of
Python who has not set up logging. All else is information: how a file is written, and what was
asked for.
"""

from __future__ import annotations

import logging

__all__ = ["notes"]

notes = logging.getLogger("apportion.reading")
