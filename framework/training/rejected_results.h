#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "framework/checkpoint/progress.h"

// The file of training_config.result_rejected_tracker_filename. Its lines are those of Megatron-LM, which can read it
// and whose file can be read (megatron/core/rerun_state_machine.py): "ts=.. node=.. device=.. jobID=.. rank=..
// iteration=.. status=.. result=.. message='..'".

namespace tessera::training {

/// What was found out about a rejected result.
enum class RejectedStatus { rerun_disabled, initial_run, first_rerun_not_reproducible, first_rerun_reproducible };

/// One result of `iteration`, counted from 1. `message` says what is wrong with it.
struct RejectedResult {
  std::int64_t iteration = 0;
  RejectedStatus status = RejectedStatus::initial_run;
  double loss = 0;
  std::string message;
};

/// Appends a line for the first rank, whose host this is. Throws IoError.
void add_rejected(const std::filesystem::path& file, const RejectedResult& result);

/// The iterations, counted from 0, that the lines of such a file say to skip: a rank rejected them twice, with the same
/// result when it computed them again or without computing them again; and no two ranks of one job did.
checkpoint::IterationSet iterations_to_skip(const std::string& lines);

}  // namespace tessera::training
