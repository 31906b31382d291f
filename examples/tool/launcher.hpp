// Which process of a job is this? Launchers say it in the environment, each in its own words.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

/// The place of a process in a job.
struct job_place {
  const char* launcher;
  uint32_t processes;
  uint32_t index;
  /// Where process 0 runs; empty if the launcher does not say.
  std::string host;
  uint32_t port;
  /// Which of the job's processes on its host this is; 0 if the launcher does not say.
  uint32_t local_index = 0;

  /// The address for nvllm_engine_config::rendezvous; empty without a host. Process 0 listens on all interfaces, because the name by
  /// which others know its host may not be one of its own interfaces; except on a host by itself.
  std::string rendezvous() const;
};

/// The value of a variable of the environment, or NULL.
using environment = std::function<const char*(const char* name)>;

/// What torchrun, Open MPI, Slurm or LeaderWorkerSet say, in this order: whoever is started by another one comes first. Nothing if
/// none of them started this process. Throws std::runtime_error if a variable has a value that it cannot have.
std::optional<job_place> find_place(const environment& variable);
