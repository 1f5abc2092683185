"""Queries a server: `jobi-tf serve exports/world` has to be running."""

from jobi_tf.serving import Client

with Client("http://127.0.0.1:8501") as client:
    for answer in client.tails("Switzerland", "official_language", k=3):
        print(answer.entity, round(answer.probability, 3), "known fact" if answer.seen else "")
    scores = client.score([("France", "capital", "Paris"), ("France", "capital", "Lyon")])
    print(scores.probability, scores.known)  # "Lyon" is not a name of this graph
