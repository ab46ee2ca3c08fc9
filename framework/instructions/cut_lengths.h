#pragma once

#include <cstdint>

namespace tessera::instructions {

struct CutLengths {
  std::int64_t prompt = 0, answer = 0;
};

/// How many tokens of a prompt and of its answer are kept of `room`: the longer one is cut, both in proportion if each
/// fills half of the room. This is _infer_seqlen of MindSpeed-LLM and LLaMA-Factory, in double precision as in Python.
CutLengths cut_lengths(std::int64_t prompt, std::int64_t answer, std::int64_t room);

/// room * part / whole, rounded down, as Python computes int(room * (part / whole)).
std::int64_t in_proportion(std::int64_t room, std::int64_t part, std::int64_t whole);

}  // namespace tessera::instructions
