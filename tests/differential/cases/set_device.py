"""All nodes are given one device."""

from tests.differential.case import Case, Refusal, error_of
from tests.differential.cases.remove_device import several_devices
from tests.differential.cases.remove_nodes import second_port
from tests.differential.graphs import fashion_keras, net, two_layers

NAME = "set_device"

SEVERAL = net(second_port, outputs=("parts:1", "out", "same"))

CASES = [
    Case("all nodes", fashion_keras, f'{NAME}(device="/device:CPU:0")'),
    Case("over other devices", several_devices, f'{NAME}(device="/device:CPU:0")'),
    Case("where there is none", two_layers, f'{NAME}(device="/device:CPU:0", if_default=true)',
         deviations=("pruned",)),
    Case("an old form", fashion_keras, f'{NAME}(device="/cpu:0", if_default=1)'),
    Case("with a job", two_layers, f'{NAME}(device="/job:localhost/replica:0/task:0/device:CPU:0")',
         deviations=("pruned",)),
    Case("several outputs, one by port", SEVERAL, f'{NAME}(device="/cpu:0")'),
    Case("none", several_devices, NAME),
    Case("set, then removed", several_devices, f'{NAME}(device="/cpu:0") remove_device'),
    Refusal("if_default is no truth value", several_devices, f"{NAME}(if_default=yes)",
            "Couldn't interpret the if_default argument as a boolean:yes",
            error_of("parameter-value", name="if_default", got="yes")),
]  # fmt: skip
