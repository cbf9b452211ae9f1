"""Cloud TPU: nodes and queued resources, through Google's own client library.

The library is imported when a client is made, and by nothing else: `pip install holdfast-ml[gcp]`.
"""
