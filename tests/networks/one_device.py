"""What sees operands that lie on two devices. Torch's device `meta` has shapes and no numbers, and is one."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class OneDevice(TorchDispatchMode):
    """Raises where the operands of an operation lie on two devices, unless it copies from one to the other."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        operands = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        copies = function in (torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default)
        if not copies and len({x.device for x in operands}) > 1:
            raise RuntimeError(f"{function} of tensors on more than one device")
        return function(*args, **(kwargs or {}))
