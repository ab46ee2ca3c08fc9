"""Prints the scalars in a folder of TensorBoard event files as JSON: {tag: [[step, value], ...]}."""
import json
import sys

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    sys.exit(77)  # the test is skipped

events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
events.Reload()
print(json.dumps({tag: [[e.step, e.value] for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}))
