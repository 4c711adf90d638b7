"""Which ops can write their result over an argument, with the same bits: by their out= overload, tried once."""

import functools

import torch
from torch.fx import Node

# They read a row before they write it.
_BY_ROWS = {torch.ops.aten._softmax_backward_data.default, torch.ops.aten._log_softmax_backward_data.default}


@functools.cache
def out_overload(target):
    """(the overload of an op, elementwise or by rows, that writes into a given tensor, the name of that argument), or None."""
    if not isinstance(target, torch._ops.OpOverload) or (torch.Tag.pointwise not in target.tags and target not in _BY_ROWS):
        return None
    wanted = [str(a.type) for a in target._schema.arguments]
    for name in target.overloadpacket.overloads():
        other = getattr(target.overloadpacket, name)
        out = [a for a in other._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        if len(out) == 1 and out[0].kwarg_only and len(other._schema.returns) == 1 and [
                str(a.type) for a in other._schema.arguments if a is not out[0]] == wanted:
            return other, out[0].name
    return None


def arguments_to_take(case):
    """Indices of the arguments of a _measure._Case whose memory its output may take: tensors of the output's shape that
    are all of their storage, where the result has the same bits."""
    found = out_overload(case.node.target)
    if found is None:
        return []
    wanted = case.run()
    return [i for i, argument in enumerate(case.node.args)
            if isinstance(argument, Node) and isinstance(case.arguments[i], torch.Tensor) and _works(case, i, found, wanted)]


def _works(case, index, found, wanted):
    taken, fake = case.arguments[index], case.node.args[index].meta["val"]
    whole = fake.numel() * fake.element_size() == fake.untyped_storage().nbytes() == wanted.untyped_storage().nbytes()
    if not whole or taken.dtype != wanted.dtype or taken.shape != wanted.shape or taken.stride() != wanted.stride():
        return False
    before = taken.clone(memory_format=torch.preserve_format)
    others = [before if a is taken else a for a in case.arguments]
    others[index] = taken
    overload, name = found
    out = overload(*others, **case.keywords, **{name: taken})
    same = out.data_ptr() == taken.data_ptr() and bool(((out == wanted) | ((out != out) & (wanted != wanted))).all())
    taken.copy_(before)
    return same
