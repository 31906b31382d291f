#include "launcher.hpp"

#include <charconv>
#include <cstring>
#include <stdexcept>

namespace {

// Where launchers name no port. The port after that of torchrun's own store.
constexpr uint32_t default_port = 29501;
constexpr uint32_t most_processes = 1u << 16;

// The value of a variable, from least to most; nothing if it is not set.
std::optional<uint32_t> number(const environment& variable, const std::string& name, uint32_t least, uint32_t most) {
  const char* text = variable(name.c_str());
  if (text == nullptr) return std::nullopt;
  uint32_t value = 0;
  const char* end = text + std::strlen(text);
  auto [stop, wrong] = std::from_chars(text, end, value);
  if (wrong == std::errc() && stop == end && value >= least && value <= most) return value;
  throw std::runtime_error(name + " is \"" + text + "\": a number from " + std::to_string(least) + " to " +
                           std::to_string(most) + " is wanted");
}

// The first host of a list as Slurm writes it: node[03-05,7],other -> node03.
std::string first_host(const char* list) {
  std::string text = list == nullptr ? "" : list;
  size_t bracket = text.find('['), comma = text.find(',');
  if (bracket == std::string::npos || comma < bracket) return text.substr(0, comma);
  size_t end = text.find_first_of("-,]", bracket);
  if (end == std::string::npos) return "";
  return text.substr(0, bracket) + text.substr(bracket + 1, end - bracket - 1);
}

}  // namespace

std::string job_place::rendezvous() const {
  if (host.empty()) return "";
  bool is_alone = host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
  std::string name = index == 0 && !is_alone ? "0.0.0.0" : host;
  if (name.find(':') != std::string::npos) name = "[" + name + "]";
  return name + ":" + std::to_string(port);
}

std::optional<job_place> find_place(const environment& variable) {
  auto place = [&](const char* launcher, const char* size, const char* index, const char* local_index) -> std::optional<job_place> {
    // Others may set one of the two for their own purposes.
    if (variable(size) == nullptr || variable(index) == nullptr) return std::nullopt;
    uint32_t processes = *number(variable, size, 1, most_processes);
    uint32_t which = *number(variable, index, 0, processes - 1);
    uint32_t local = number(variable, local_index, 0, processes - 1).value_or(0);
    return job_place{launcher, processes, which, "", default_port, local};
  };
  auto text = [&](const char* name) -> std::string {
    const char* value = variable(name);
    return value == nullptr ? "" : value;
  };
  if (auto found = place("torchrun", "WORLD_SIZE", "RANK", "LOCAL_RANK")) {
    found->host = text("MASTER_ADDR");
    // The port itself belongs to torchrun, whose own store may listen there. The next one is used.
    if (auto port = number(variable, "MASTER_PORT", 1, 65534)) found->port = *port + 1;
    return found;
  }
  if (auto found = place("Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")) {
    // It names no host; if all processes are on this one, none is needed.
    auto here = number(variable, "OMPI_COMM_WORLD_LOCAL_SIZE", 1, found->processes);
    if (here && *here == found->processes) found->host = "127.0.0.1";
    return found;
  }
  if (auto found = place("Slurm", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID")) {
    std::string hosts = text("SLURM_STEP_NODELIST");
    found->host = first_host(hosts.empty() ? variable("SLURM_JOB_NODELIST") : hosts.c_str());
    return found;
  }
  if (auto found = place("LeaderWorkerSet", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX", "")) {
    found->host = text("LWS_LEADER_ADDRESS");
    return found;
  }
  return std::nullopt;
}
