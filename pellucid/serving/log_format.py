"""The log of the service: lines of JSON or plain messages."""

import json
import logging
import sys

from pellucid.reporting.display_text import visible_message


class JsonFormatter(logging.Formatter):
    """Format of log records as lines of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line.

        Args:
            record: Log record; its attribute `details` holds the fields of a request.
        """
        fields = getattr(record, "details", {"message": record.getMessage()})
        content = {"time": round(record.created, 3), "level": record.levelname.lower(), **fields}
        if record.exc_info:
            content["traceback"] = self.formatException(record.exc_info)
        return json.dumps(content)


class PlainFormatter(logging.Formatter):
    """Format of log records as the other messages of the command line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one message, with visible signs in place of control characters.

        Args:
            record: Log record.
        """
        message = visible_message(record.getMessage())
        return f"pellucid: {message}" + (f"\n{self.formatException(record.exc_info)}" if record.exc_info else "")


def configure_log(json_lines: bool) -> None:
    """Write the log of the service on standard error.

    Args:
        json_lines: Write each record, and each request, as a line of JSON; otherwise messages only.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if json_lines else PlainFormatter())
    logger = logging.getLogger("pellucid.serving")
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
    logging.getLogger("pellucid.serving.access").setLevel(logging.INFO if json_lines else logging.WARNING)
