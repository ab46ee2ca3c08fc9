#pragma once

#include "framework/autograd/tape.h"
#include "framework/comm/communicator.h"

namespace tessera {

/// Passages between what all processes of a tensor-parallel group have alike and what each has a part of. In pairs, the
/// backward pass of one is the forward pass of the other. All members call them in the same order; with one member they
/// are the identity. Values are [.., width] in the type of their tape; the sequence is dim 1 of [B, T, width]. `who`
/// names the caller in records and messages and outlives the tape. A value that comes to nothing in the loss gets no
/// gradient and its backward pass sends nothing; that is so on all members or on none. Extents that do not divide by
/// the group are ShapeErrors. Source: Megatron-LM core, tensor_parallel/mappings.
///
///                                         forward          backward
///   copy_to_tensor_region                 identity         sum
///   reduce_from_tensor_region             sum              identity
///   scatter_to_tensor_region              part of width    gather
///   gather_from_tensor_region             gather width     part
///   scatter_to_sequence_region            part of tokens   gather
///   gather_from_sequence_region           gather tokens    part of the sum, or part
///   reduce_scatter_to_sequence_region     part of the sum  gather
Var copy_to_tensor_region(const Var& x, const Communicator& group, std::string_view who);
Var reduce_from_tensor_region(Var x, const Communicator& group, std::string_view who);
Var scatter_to_tensor_region(const Var& x, const Communicator& group, std::string_view who);
Var gather_from_tensor_region(const Var& x, const Communicator& group, std::string_view who);
Var scatter_to_sequence_region(const Var& x, const Communicator& group, std::string_view who);
/// `parts_differ`: what follows is cut over the members, so that each has a share of the gradient, to be summed.
Var gather_from_sequence_region(const Var& x, const Communicator& group, std::string_view who,
                                bool parts_differ = true);
Var reduce_scatter_to_sequence_region(const Var& x, const Communicator& group, std::string_view who);

}  // namespace tessera
