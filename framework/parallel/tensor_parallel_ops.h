#pragma once

#include "framework/autograd/tape.h"
#include "framework/comm/communicator.h"

namespace tessera::parallel {

/// The mappings between values that all ranks of a tensor-parallel group have alike and values that each rank has a
/// part of. They come in pairs: the backward pass of one is the forward pass of the other. Source: Megatron-LM core,
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
/// x is [.., width] in any type; the sequence is dimension 1 of [B, T, width]. The result is on the tape of x and in
/// its type. All members of `group` make the same calls in the same order; with one member every mapping is the
/// identity. `who` names the caller in operation records and messages, and must outlive the tape.
///
/// If a value gets no gradient (it does not contribute to the loss), its backward pass communicates nothing; this must
/// be so on all members or on none. Throws ShapeError if a dimension is not divisible by the size of the group,
/// CommError as Communicator does.
autograd::Var copy_to_tensor_region(const autograd::Var& x, const comm::Communicator& group, std::string_view who);
autograd::Var reduce_from_tensor_region(autograd::Var x, const comm::Communicator& group, std::string_view who);
autograd::Var scatter_to_tensor_region(const autograd::Var& x, const comm::Communicator& group, std::string_view who);
autograd::Var gather_from_tensor_region(const autograd::Var& x, const comm::Communicator& group, std::string_view who);
autograd::Var scatter_to_sequence_region(const autograd::Var& x, const comm::Communicator& group, std::string_view who);
/// `parts_differ`: the following operation is sharded over the group, so each rank has a summand of the gradient and
/// they are reduce-scattered; false: the ranks have equal gradients, and each takes its part.
autograd::Var gather_from_sequence_region(const autograd::Var& x, const comm::Communicator& group, std::string_view who,
                                          bool parts_differ = true);
autograd::Var reduce_scatter_to_sequence_region(const autograd::Var& x, const comm::Communicator& group,
                                                std::string_view who);

}  // namespace tessera::parallel
