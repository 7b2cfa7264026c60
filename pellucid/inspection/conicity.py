"""How alike the states of a source are.

S source positions, D their size.
"""

import numpy as np
from jaxtyping import Float


def conicity(vectors: Float[np.ndarray, "S D"]) -> float:
    """Mean over s of cos(h_s, h̄), where h̄ is the mean of all h_s: 1 where all point one way, near 0 where they do not.

    Of states that are nearly one, attention may read any: then permuting its weights changes little. Of one state it is
    1; a zero vector has cosine 0. Source: Mohankumar et al. 2020, section 3.1, after Chandrahas et al. 2018.
    `ValueError` without vectors.
    """
    if not vectors.size:
        raise ValueError("conicity needs a vector at least")
    values = vectors.astype(np.float64)
    mean = values.mean(axis=0)
    lengths = np.linalg.norm(values, axis=1) * np.linalg.norm(mean)
    return float(np.divide(values @ mean, lengths, out=np.zeros(len(values)), where=lengths > 0).mean())
