"""A server with the part of S3's protocol that reading needs: list, size, and ranges of bytes."""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


@contextlib.contextmanager
def object_store(bucket: str, objects: Mapping[str, bytes]) -> Iterator[str]:
    """Yield the end of a URI of this store: `?scheme=http&endpoint_override=HOST:PORT`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            split = urlsplit(self.path)
            key = unquote(split.path).removeprefix(f"/{bucket}").removeprefix("/")
            if not key:
                self._reply(200, self._listing(parse_qs(split.query)))
            elif key not in objects:
                self._reply(404, b"")
            elif wanted := self.headers.get("Range"):
                first, _, last = wanted.removeprefix("bytes=").partition("-")
                part = objects[key][int(first) : int(last) + 1]
                self._reply(206, part, f"bytes {first}-{last}/{len(objects[key])}")
            else:
                self._reply(200, objects[key])

        do_HEAD = do_GET

        def _listing(self, query: Mapping[str, list[str]]) -> bytes:
            prefix, limit = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
            keys, folders = [], set()
            for key in sorted(key for key in objects if key.startswith(prefix)):
                below = key.removeprefix(prefix)
                if limit and limit in below:
                    folders.add(prefix + below.partition(limit)[0] + limit)
                else:
                    keys.append(key)
            date = "<LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            found = "".join(
                f"<Contents><Key>{escape(key)}</Key><Size>{len(objects[key])}</Size>{date}"
                "</Contents>" for key in keys
            ) + "".join(
                f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>"
                for each in sorted(folders)
            )  # fmt: skip
            return (
                f"<ListBucketResult><Name>{bucket}</Name><IsTruncated>false</IsTruncated>"
                f"<KeyCount>{len(keys) + len(folders)}</KeyCount>{found}</ListBucketResult>"
            ).encode()

        def _reply(self, status: int, content: bytes, part: str = "") -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
            self.send_header("ETag", '"1"')
            if part:
                self.send_header("Content-Range", part)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"?scheme=http&region=x&endpoint_override=127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
