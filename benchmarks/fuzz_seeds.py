"""First inputs of the targets, from a small run that is trained once, and the list of all targets."""

import gzip
import io
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks import fuzz_targets as targets
from benchmarks.fuzz_targets import SEPARATOR, TABLE_VARIANTS, Target

WORDS = ("a", "ab", "bab", "abba", "b", "aab", "ba", "bb")


def train_seed_run(folder: Path) -> Path:
    """Train a small run, whose files are the first inputs of the targets of run folders, unless it exists.

    Args:
        folder: Folder of the training file and the run.

    Returns:
        The run folder.
    """
    run = folder / "run"
    if not (run / "card.md").exists():
        import pellucid

        folder.mkdir(parents=True, exist_ok=True)
        pairs = [(word + other, other + word) for word, other in product(WORDS, WORDS)]
        (folder / "train.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs), "utf-8")
        sizes: dict[str, Any] = {"size": "tiny", "training": {"epochs": 2, "batch_size": 16}}
        sizes["encoder"] = {"hidden_size": 4, "embedding_size": 3}
        sizes["decoder"] = {"hidden_size": 5, "embedding_size": 3}
        pellucid.train(folder / "train.tsv", None, run, sizes, progress=False)
    return run


def with_variants(contents: Sequence[bytes], num_variants: int = 1) -> list[bytes]:
    """Return inputs: each content after the byte of each variant.

    Args:
        contents: Contents.
        num_variants: Number of variants.
    """
    return [bytes([variant]) + content for variant in range(num_variants) for content in contents]


def with_two_variants(contents: Sequence[Sequence[bytes]]) -> list[bytes]:
    """Return inputs of a target with two variants in one byte (`choose_two`): the format, and the settings of a table.

    Args:
        contents: Contents of each format.
    """
    return [
        bytes([kind + len(contents) * variant]) + content
        for kind, of_kind in enumerate(contents)
        for variant in range(len(TABLE_VARIANTS))
        for content in of_kind
    ]


TSV = (
    b"ab\tba\nabc\tcba\n",
    b"source\ttarget\tother\nab\tba\tx\n\nabc\tcba\ty\n",
    b"\xef\xbb\xbfa b\tX Y\r\nc d\tZ Z\r\n",
    "é\te\u0301\n\u2028\t\x85\n😀\t\u200fا\n".encode(),
    b"abc\t2\nab\t1\nb\t9\n",
    b"laufen\tlief\tV;PST\nsehen\tsah\tV\n" * 12,
    b"\n \t\nab\tba\n\0\tx\n\xff\tx\na\rb\tc\nab\n\tx\nx\t\nab\tba",
)
CSV = (
    b"ab,ba\nabc,cba\n",
    b'source,target\n"a,b","c ""d"" e"\n"two\nlines",x\n\n',
    b"id;source;target\n1;ab;ba\n2;abc;cba\n",
    b"ab|ba\nabc|cba\n",
    b'"unclosed,ab\nab,ba\n',
    b"a,b\r\nc\rd,e\r\n",
)
JSON_LINES = (
    b'{"source": "ab", "target": "ba"}\n{"target": "x", "source": "y", "other": [1, {"a": null}]}\n',
    b'{"source": "\\u00e9", "target": "\\ud83d\\ude00", "tags": "V;PST"}\n\n'
    b'{"source": null, "target": 1}\n[]\n"x"\nnull\n',
    b'{"source": "a", "source": "b", "target": "c"}\n{"source": "\\"", "target": "\\\\"}\n',
)


def parquet_seeds() -> list[bytes]:
    """Return Parquet files of several encodings, compressions and types."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = ["ab", "ba", "", "é", "long" * 30, "ab", "ab", "x"]
    plain = pa.table({"source": texts, "target": texts[::-1]})
    odd = pa.table(
        {
            "source": pa.array([*texts[:7], None]),
            "target": pa.array([b"\xff", *(text.encode() for text in texts[1:])], pa.binary()),
            "other": pa.array([[1], None, [2, 3], [], [4], [5], [6], [7]]),
        }
    )
    dictionary = pa.table({"source": pa.array(texts).dictionary_encode(), "target": pa.array(texts, pa.large_string())})
    options: list[tuple[Any, dict[str, Any]]] = [
        (plain, {"compression": "none"}),
        (plain, {"compression": "zstd", "use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"}),
        (plain, {"compression": "gzip", "row_group_size": 3, "write_page_checksum": True}),
        (plain, {"compression": "snappy", "data_page_version": "2.0", "use_dictionary": False}),
        (odd, {"compression": "none", "column_encoding": "PLAIN", "use_dictionary": False}),
        (dictionary, {"compression": "lz4"}),
        (plain.slice(0, 0), {}),
    ]
    contents = []
    for table, settings in options:
        file = io.BytesIO()
        pq.write_table(table, file, **settings)
        contents.append(file.getvalue())
    return contents


def gzip_seeds() -> list[bytes]:
    """Return gzip files: one member, two, stored, with a name, and a small bomb."""
    named = io.BytesIO()
    with gzip.GzipFile("name", "wb", fileobj=named, mtime=0) as file:
        file.write(TSV[0])
    return [
        gzip.compress(TSV[0], mtime=0),
        gzip.compress(TSV[0], mtime=0) + gzip.compress(TSV[1], mtime=0),
        gzip.compress(TSV[5], 0, mtime=0),
        named.getvalue(),
        gzip.compress(b"ab\tba\n" * 2000, mtime=0),
        gzip.compress(b"a" * 300_000, mtime=0),
        gzip.compress(gzip.compress(TSV[0]), mtime=0),
        b"\x1f\x8b",
        TSV[0],
    ]


def run_file(name: str, num_variants: int = 1) -> Callable[[Path], list[bytes]]:
    """Return a function that gives the file of the small run as inputs.

    Args:
        name: Name of the file, or of a folder with files.
        num_variants: Number of variants.
    """

    def read(run: Path) -> list[bytes]:
        """Return the inputs.

        Args:
            run: The run folder.
        """
        paths = [run / name] if (run / name).is_file() else sorted((run / name).iterdir())[:3]
        return with_variants([path.read_bytes() for path in paths], num_variants)

    return read


def config_seeds(run: Path) -> list[bytes]:
    """Return settings of the user, of a run, and of a search space.

    Args:
        run: The run folder.
    """
    user = (
        b'size = "tiny"\n[encoder]\nhidden_size = 8\ndropout = 0.1\n[attention]\ntype = "dot"\n',
        b'task = "tag"\n[data]\ntarget_symbols = "words"\nsource_symbols = "words"\nheader = true\n',
        b'task = "classify"\nseed = 3\n[training]\nepochs = 2.5\nlearning_rate = 1e-3\ntime_limit = "1h"\n',
        b'[search]\nbeam_size = 5\n[decoder]\ncell = "lstm"\nnum_layers = 2\n',
    )
    space = (
        b"[encoder]\nhidden_size = {from = 8, to = 64}\n"
        b"[training]\nlearning_rate = {from = 0.001, to = 0.1, scale = 'log'}\n"
    )
    saved = (run / "config.toml").read_bytes()
    short = b"\n".join(line for line in saved.split(b"\n") if not line.startswith(b"#"))
    return [
        *with_variants(user),
        *(b"\1" + content for content in (saved, short)),
        b"\2" + space + b"[decoder]\nnum_layers = {choices = [1, 2]}\n",
    ]


def vocabulary_seeds(run: Path) -> list[bytes]:
    """Return vocabularies: that of the run, with subwords, and with features.

    Args:
        run: The run folder.
    """
    saved = json.loads((run / "vocabulary.json").read_bytes())
    pieces = {"alphabet": ["a", "b", " "], "merges": [["a", "b"], ["ab", "a"], [" ", "a"]], "rare": ["aba"]}
    with_pieces = {**saved, "pieces": {"source": pieces, "target": pieces}}
    numbered = {**saved, "target": {"symbols": ["1", "2"], "counts": [2, 1]}}
    return with_variants([json.dumps(each).encode() for each in (saved, with_pieces, numbered)], 4)


def trace_seeds(run: Path) -> list[bytes]:
    """Return traces of a beam search in both forms, and of forced decoding.

    Args:
        run: The run folder.
    """
    import pellucid

    model = pellucid.load(run)
    traces = [*model.predict(["ab", "abba"]), *model.with_beam(1).predict(["ab"]), *model.nbest(["ba"], 2)[0]]
    texts = [trace.to_json(compact) for trace in traces for compact in (False, True)]
    return with_variants([text.encode() for text in texts])


def record_seeds(run: Path) -> list[bytes]:
    """Return the small files of run folders.

    Args:
        run: The run folder.
    """
    file = {"size": 10, "sha256": "a" * 64}
    names = ("config.toml", "vocabulary.json", "model.safetensors")
    manifest = {
        "format": 1,
        "pellucid": "0.1",
        "task": "transduce",
        "extensions": {},
        "files": dict.fromkeys(names, file),
    }
    journal = b'{"op_code": 0, "worker_id": "w", "study_name": "s", "directions": [2]}\n'
    return [
        b"\0" + (run / "confidence.json").read_bytes(),
        b'\1{"members": ["seed-1", "seed-2"], "pair_ngram_weight": 0.5, "format": 1}',
        b"\2" + json.dumps(manifest).encode(),
        b"\2" + json.dumps({**manifest, "facts": {"date": "2026-11-28", "finished": True}}).encode(),
        b"\3" + journal,
        b"\3" + journal + b'{"op_code": 2, "worker_id": "w", "study_id": 0, "user_attr": {"description": "{}"}}\n{"op_',
    ]


def corpus_seeds(run: Path) -> list[bytes]:
    """Return a corpus in an Arrow file.

    Args:
        run: The run folder.
    """
    from pellucid.data.corpus import EncodedCorpus, ReadingReport, write_corpus
    from pellucid.data.encoding import encode_examples
    from pellucid.data.examples import Example
    from pellucid.data.tokenizers import build_tokenizers
    from pellucid.data.vocabulary import learn_vocabularies

    examples = [Example(word, word[::-1]) for word in WORDS]
    tokenizers = build_tokenizers(targets.base_config().data)
    vocabularies = learn_vocabularies(examples, tokenizers, 1)
    encoded = encode_examples(examples, tokenizers, vocabularies)
    path = run.parent / "corpus.arrow"
    write_corpus(path, EncodedCorpus("key", ReadingReport((), 0, 0), vocabularies, encoded))
    return with_variants([path.read_bytes()], 2)


def request_seeds(run: Path) -> list[bytes]:
    """Return the bodies of requests, each after the byte of its operation.

    Args:
        run: The run folder; unused.
    """
    row, prefixed = b'{"source": "ab"}', b'{"source": "abba", "prefix": "b"}'
    pair, other = b'{"source": "ab", "target": "ba"}', b'{"source": "b", "target": "zz"}'
    rows = {
        "predict": b'{"rows": [%s, %s], "beam_size": 3}' % (row, prefixed),
        "nbest": b'{"rows": [%s, %s], "count": 3}' % (row, prefixed),
        "score": b'{"rows": [%s, %s]}' % (pair, other),
        "attention": b'{"rows": [%s]}' % row,
        "align": b'{"rows": [%s, %s]}' % (pair, other),
        "tag": b'{"rows": [%s]}' % row,
        "classify": b'{"rows": [%s]}' % row,
    }
    return [bytes([index]) + rows[name] for index, name in enumerate(targets.OPERATION_NAMES)]


def prepared_seeds(run: Path) -> list[bytes]:
    """Return the files of prepared data, as the target writes them, and one input for each kind of a wrong file.

    Args:
        run: The run folder, beside which the data is prepared.
    """
    from pellucid.training.preparation import prepare_data
    from pellucid.training.training_data import TrainingFiles

    folder = run.parent / "prepared"
    if not (folder / "prepared.json").exists():
        list(prepare_data(TrainingFiles(run.parent / "train.tsv", None), folder, targets.base_config()))
    files = [bytes([index]) + (folder / name).read_bytes() for index, name in enumerate(targets.PREPARED_NAMES)]
    return [*files, *(bytes([variant]) for variant in range(3, 15))]


def folder_seeds(run: Path) -> list[bytes]:
    """Return the files of a run folder, each as the variant of its name.

    Args:
        run: The run folder.
    """
    return [bytes([index]) + (run / name).read_bytes() for index, name in enumerate(targets.FOLDER_FILES)]


def http_seeds(run: Path) -> list[bytes]:
    """Return requests of each operation, and some of unusual form.

    Args:
        run: The run folder; unused.
    """
    return with_variants(list(_requests()))


def _requests() -> Iterator[bytes]:
    """Yield HTTP requests."""
    head = b"POST /v1/%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    row, pair = b'{"source": "ab", "features": ""}', b'{"source": "ab", "target": "ba"}'
    bodies = {
        b"predict": b'{"rows": [%s], "model": "m", "beam_size": 3, "max_length": 10}' % row,
        b"nbest": b'{"rows": [%s, %s], "count": 3}' % (row, row),
        b"score": b'{"rows": [%s]}' % pair,
        b"align": b'{"rows": [%s]}' % pair,
        b"tag": b'{"rows": [%s]}' % row,
    }
    for name, body in bodies.items():
        yield head % name + b"Content-Length: %d\r\n\r\n" % len(body) + body
    yield (
        head % b"predict"
        + b"Transfer-Encoding: chunked\r\n\r\n"
        + b'12\r\n{"rows": [{"source\r\n5\r\n": ""\r\n2\r\n}]\r\n1\r\n}\r\n0\r\n\r\n'
    )
    for path in (b"/", b"/health", b"/ready", b"/metrics", b"/v1/models", b"/openapi.json", b"/none"):
        yield (
            b"GET "
            + path
            + b" HTTP/1.1\r\nHost: localhost:8000\r\nX-Request-ID: abc\r\nOrigin: http://localhost\r\n\r\n"
        )
    yield (
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        b"GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    yield b"OPTIONS /v1/predict HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n"


READERS = ("pellucid.data.readers", "pellucid.data.examples", "pellucid.data.lines")
TENSORS = ("pellucid.run_folder.tensor_file",)
TARGETS: tuple[Target, ...] = (
    Target(
        "tsv",
        (*READERS, "pellucid.data.headers"),
        "text",
        targets.check_tsv,
        lambda _: with_variants(TSV, len(TABLE_VARIANTS)),
    ),
    Target(
        "csv",
        (*READERS, "pellucid.data.delimiters"),
        "text",
        targets.check_csv,
        lambda _: with_variants(CSV, len(TABLE_VARIANTS)),
    ),
    Target("json-lines", READERS, "json", targets.check_json_lines, lambda _: with_variants(JSON_LINES, 3)),
    Target(
        *("parquet", READERS, "text", targets.check_parquet, lambda _: with_variants(parquet_seeds(), 2)),
        reserved_memory=8192,  # pyarrow reserves what the header of a page claims, at most 2 GiB, before it reads
    ),
    Target("gzip", ("pellucid.data.lines",), "gzip", targets.check_gzip, lambda _: with_variants(gzip_seeds())),
    Target(
        *("parallel", READERS, "text", targets.check_parallel),
        lambda _: with_variants([b"ab\nabc" + SEPARATOR + b"ba\ncba", b"ab\tV\n\nc\tN" + SEPARATOR + b"x\n\ny"], 4),
    ),
    Target(
        *("lexicon", READERS, "text", targets.check_lexicon),
        lambda _: with_two_variants((TSV, CSV, JSON_LINES)),
    ),
    Target(
        *("split", ("pellucid.data.file_split",), "text", targets.check_split),
        lambda _: with_two_variants([[content * 5 for content in contents] for contents in (TSV, CSV, JSON_LINES)]),
    ),
    Target(
        *("decisions", ("pellucid.auditing.decisions",), "text", targets.check_decisions),
        lambda _: with_variants(
            [
                b"line,source,target,decision,new_target\n1,ab,ba,keep,\n2,a,b,replace,c\n3,a,b,delete,\n",
                b"new_source,line,source,target,decision,new_target\n,1,ab,ba,keep,\nc,2,a,b,replace,\n",
            ]
        ),
    ),
    Target(
        *("applied-decisions", ("pellucid.auditing.decisions",), "text", targets.check_applied_decisions),
        lambda _: with_two_variants((TSV, CSV)),
    ),
    Target(
        *("vectors", ("pellucid.data.vectors",), "text", targets.check_vectors),
        lambda _: with_variants([b"2 2\na 0.5 -1\nb 1e-3 2\n", b"a 1\nx y 2\n", "é 1 2 3\n0 4 5 6\n".encode()], 3),
    ),
    Target(
        *("vocabulary", ("pellucid.data.vocabulary", "pellucid.data.tokenizers"), "json", targets.check_vocabulary),
        vocabulary_seeds,
    ),
    Target("config", ("pellucid.config.toml", "pellucid.tuning.space"), "toml", targets.check_config, config_seeds),
    Target(
        *("weights", (*TENSORS, "pellucid.run_folder.model_file", "pellucid.run_folder.identity"), "safetensors"),
        targets.check_weights,
        run_file("model.safetensors", 2),
    ),
    Target(
        *("training-state", (*TENSORS, "pellucid.training.checkpoint", "pellucid.run_folder.progress"), "safetensors"),
        targets.check_training_state,
        run_file("training.safetensors", 2),
    ),
    Target(
        *("snapshot", (*TENSORS, "pellucid.training.snapshots"), "safetensors", targets.check_snapshot),
        run_file("snapshots", 2),
    ),
    Target(
        *("pair-ngram", (*TENSORS, "pellucid.run_folder.pair_ngram_file"), "safetensors", targets.check_pair_ngram),
        run_file("pair_ngram.safetensors", 2),
    ),
    Target(
        *("log", ("pellucid.run_folder.log", "pellucid.run_folder.log_records"), "json", targets.check_log),
        run_file("log.jsonl"),
    ),
    Target(
        *("trace", ("pellucid.decoding.trace", "pellucid.decoding.trace_schema"), "json", targets.check_trace),
        trace_seeds,
    ),
    Target(
        "records",
        ("pellucid.run_folder.confidence_file", "pellucid.sharing.manifest", "pellucid.tuning.journal"),
        "json",
        targets.check_records,
        record_seeds,
    ),
    Target("corpus", ("pellucid.data.corpus",), "arrow", targets.check_corpus, corpus_seeds),
    Target(
        *("checksums", ("pellucid.run_folder.checksums",), "text", targets.check_checksums),
        lambda _: with_variants([b"0" * 64 + b"  config.toml\n" + b"a" * 64 + b" *snapshots/1.safetensors\r\n"]),
    ),
    Target(
        *("prepared", ("pellucid.data.prepared_data", "pellucid.data.corpus"), "json", targets.check_prepared),
        prepared_seeds,
    ),
    Target(
        *("audit-rules", ("pellucid.auditing.rules", "pellucid.data.normalization"), "text"),
        targets.check_audit_rules,
        lambda _: with_variants(TSV, len(TABLE_VARIANTS)),
    ),
    Target(
        "service-rows",
        ("pellucid.serving.decoding_worker", "pellucid.decoding.preprocessing", "pellucid.decoding.options"),
        "json",
        targets.check_service_rows,
        request_seeds,
    ),
    Target(
        *("prefixes", ("pellucid.cli.prefix_file", "pellucid.decoding.options"), "text", targets.check_prefixes),
        lambda _: with_variants([b"a\n\nba\r\n", b"abba\nb"]),
    ),
    Target(
        *("text", ("pellucid.decoding.text_decoder", "pellucid.data.text_words"), "text", targets.check_text),
        lambda _: with_variants(["Ab ba, (b)b é!\n\nab 3.14\n".encode(), b"a" * 30 + b" b.b\tab"], 3),
    ),
    Target(
        *("fill", ("pellucid.cli.predict_fill", "pellucid.data.readers"), "text", targets.check_fill),
        lambda _: [
            b'\0source,target,n\nab,,1\nba,x,\n\nb," ","two\nlines"\n',
            b"\1\xef\xbb\xbfid\tsource\ttarget\r\n1\tab\t\r\n\r\n2\tb\ty\r\n",
        ],
    ),
    Target(
        *("folder", ("pellucid.run_folder.run_parts", "pellucid.run_folder.predictor_loader"), "text"),
        targets.check_folder,
        folder_seeds,
    ),
    Target(
        *("http", ("pellucid.http_requests", "pellucid.serving.application", "pellucid.serving.server"), "http"),
        targets.check_http,
        http_seeds,
    ),
)
"""All targets."""
