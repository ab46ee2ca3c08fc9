#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/options/schema.h"

namespace tessera::training {

/// Level of detail of a profile.
enum class ProfileLevel {
  level0,  ///< phases of a step, communication, waiting for data
  level1,  ///< as level0, plus modules, recorded operations, kernels
  level2   ///< as level1, plus the part of every thread in each kernel
};
inline options::Words<ProfileLevel> words(ProfileLevel) {
  return {{"level0", ProfileLevel::level0}, {"level1", ProfileLevel::level1}, {"level2", ProfileLevel::level2}};
}

/// Which modules and recorded operations a profile contains.
enum class ProfileFramework { all, time, none };
inline options::Words<ProfileFramework> words(ProfileFramework) {
  return {{"all", ProfileFramework::all}, {"time", ProfileFramework::time}, {"None", ProfileFramework::none}};
}

/// Options of training_config for the profile of a run. describe() documents each option.
struct ProfileOptions {
  bool profile = false;
  std::optional<std::string> profile_save_path;
  std::int64_t profile_step_start = 10, profile_step_end = 12;
  std::vector<std::int64_t> profile_ranks = {0};
  ProfileLevel profile_level = ProfileLevel::level0;
  bool profile_memory = false;
  ProfileFramework profile_framework = ProfileFramework::all;
  bool profile_op_time = true;
  bool profile_communication = false;
  bool profile_parallel_strategy = false;
  bool profile_data_process = false;
  bool profile_offline_analyse = false;
};
void describe(options::Schema<ProfileOptions>& s);

}  // namespace tessera::training
