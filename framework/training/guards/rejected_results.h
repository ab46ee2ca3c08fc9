#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "framework/checkpoint/progress.h"

// The file of training_config.result_rejected_tracker_filename. It has Megatron-LM's format, so Megatron-LM can read
// it, and Tessera can read Megatron-LM's (megatron/core/rerun_state_machine.py): "ts=.. node=.. device=.. jobID=..
// rank=.. iteration=.. status=.. result=.. message='..'".

namespace tessera::training {

/// What is known about a rejected result.
enum class RejectedStatus { rerun_disabled, initial_run, first_rerun_not_reproducible, first_rerun_reproducible };

/// A rejected result of `iteration`, counted from 1. `message`: what is wrong with it.
struct RejectedResult {
  std::int64_t iteration = 0;
  RejectedStatus status = RejectedStatus::initial_run;
  double loss = 0;
  std::string message;
};

/// Appends a line in the name of rank 0 and this host. Throws IoError if the file cannot be written.
void add_rejected(const std::filesystem::path& file, const RejectedResult& result);

/// Returns the iterations, counted from 0, that a file with these `lines` says to skip. An iteration is skipped if a
/// rank rejected it twice, either with the same result when it was computed again or without computing it again, unless
/// two ranks of one job rejected it.
checkpoint::IterationSet iterations_to_skip(const std::string& lines);

}  // namespace tessera::training
