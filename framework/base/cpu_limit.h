#pragma once

#include <optional>
#include <string>

#include "framework/base/control_group.h"

namespace tessera {

/// The processor time that control groups leave this process, in cores: docker --cpus, limits of Kubernetes.
struct CpuQuota {
  double cores = 0;    ///< above 0; 1.5: one and a half cores
  std::string source;  ///< "the CPU quota of the control group (PATH)"
};

/// The smallest quota of this process's control group (version 1 or 2) and the groups above it; absent: no quota.
std::optional<CpuQuota> cpu_quota(const ControlGroups& where = {});

/// Number of cores (logical processors) in the affinity mask of this process.
int allowed_cores();

/// Number of cores that threads of this host may keep busy together: allowed_cores(), or the quota rounded down, if
/// that is less; at least 1. Rounded down, because threads of a step wait for each other, and those beyond the quota
/// would be stopped while the others wait.
int usable_core_count();
/// The same for a mask of `allowed` cores.
int usable_core_count(int allowed);

}  // namespace tessera
