#pragma once

#include "framework/autograd/tape.h"
#include "framework/comm/communicator.h"

namespace tessera::parallel {

/// Mappings between values that are equal on all ranks of a tensor-parallel group and values of which each rank has a
/// part. They come in pairs: the backward pass of one is the forward pass of the other. Source: Megatron-LM core,
/// tensor_parallel/mappings.
///
///                                         forward             backward
///   copy_to_tensor_region                 identity            all-reduce
///   reduce_from_tensor_region             all-reduce          identity
///   scatter_to_tensor_region              split width         all-gather width
///   gather_from_tensor_region             all-gather width    split width
///   scatter_to_sequence_region            split tokens        all-gather tokens
///   gather_from_sequence_region           all-gather tokens   reduce-scatter tokens, or split
///   reduce_scatter_to_sequence_region     reduce-scatter      all-gather tokens
///
/// x is [.., width] in any type; the sequence is dimension 1 of [B, T, width]. The result is on the tape of x and has
/// its type. All members of `group` make the same calls in the same order; with one member every mapping is the
/// identity. `who` names the caller in operation records and messages, and must outlive the tape.
///
/// If a value gets no gradient (because it does not contribute to the loss), its backward pass communicates nothing;
/// this must hold on all members or on none. Throws ShapeError if a dimension is not divisible by the size of the
/// group, and CommError as Communicator does.
autograd::Var copy_to_tensor_region(const autograd::Var& x, const comm::Communicator& group, std::string_view who);
autograd::Var reduce_from_tensor_region(autograd::Var x, const comm::Communicator& group, std::string_view who);
autograd::Var scatter_to_tensor_region(const autograd::Var& x, const comm::Communicator& group, std::string_view who);
autograd::Var gather_from_tensor_region(const autograd::Var& x, const comm::Communicator& group, std::string_view who);
autograd::Var scatter_to_sequence_region(const autograd::Var& x, const comm::Communicator& group, std::string_view who);
/// `parts_differ`: true if the next operation is sharded over the group: each rank then has a summand of the gradient,
/// and the summands are reduce-scattered. False: all ranks have the same gradient, and each takes its part.
autograd::Var gather_from_sequence_region(const autograd::Var& x, const comm::Communicator& group, std::string_view who,
                                          bool parts_differ = true);
autograd::Var reduce_scatter_to_sequence_region(const autograd::Var& x, const comm::Communicator& group,
                                                std::string_view who);

}  // namespace tessera::parallel
