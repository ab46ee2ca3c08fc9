#include "framework/training/saving/sample_quarantine.h"

#include <fcntl.h>

#include <filesystem>

#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/base/system_call.h"
#include "framework/comm/together.h"
#include "framework/log/log.h"

namespace tessera::training {
namespace {

constexpr auto quarantine_operation = "the quarantine of samples";
const log::Logger quarantine_logger("data");

/// What this rank found, for the others. The reason may hold bytes of a file that are no UTF-8.
std::string told(const std::vector<data::BadSample>& found) {
  auto all = Json::array();
  const auto host = found.empty() ? "" : host_name();
  for (const auto& one : found) all.push_back({{"sample", one.index}, {"reason", one.reason}, {"host", host}});
  return all.dump();
}

}  // namespace

void SampleQuarantine::restore(const Samples& samples, bool continues) {
  const auto path = folder_ + "/" + quarantine_file_name;
  std::string content;
  comm::together(world_, quarantine_operation, [&] {
    if (world_.rank() > 0) return;
    if (!continues) delete_all(path);
    if (!std::filesystem::exists(path)) return;
    content = read_file(path);
    content.resize(content.rfind('\n') + 1);  // the machine may have crashed while a line was written
    static_cast<void>(data::read_quarantine(content, path));
  });
  content = world_.broadcast(content, 0, quarantine_operation);
  data_.quarantines->restore(data::read_quarantine(content, path));
  for (const auto& [split, indices] : samples)
    for (const auto index : indices) data_.quarantines->restore({{split, index}});
}

void SampleQuarantine::add(const data::Dataset& data, const std::vector<data::BadSample>& found,
                           std::int64_t iteration) {
  const auto all = world_.all_gather(told(found), quarantine_operation);
  auto& quarantines = *data_.quarantines;
  const auto& split = quarantines.split_of(data);
  std::string lines, last;
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    for (const auto& one : read_json(all[rank])) {
      const auto index = one.at("sample").get<std::int64_t>();
      last = one.at("reason").string();
      if (!quarantines.add({split, index})) continue;
      const Json line = {{"split", split}, {"sample", index},        {"iteration", iteration},
                         {"rank", rank},   {"host", one.at("host")}, {"reason", last}};
      lines += line.dump() + "\n";
      if (world_.rank() == 0)
        quarantine_logger.warning(text("data: sample ", index, " of ", split, " is replaced by another (rank ", rank,
                                       ", iteration ", iteration, "): ", last));
    }
  comm::together(world_, quarantine_operation, [&] {
    if (world_.rank() == 0) append(lines);
  });
  const auto count = static_cast<std::int64_t>(quarantines.found().size()), limit = data_.batch.bad_sample_limit;
  if (count > limit)
    throw ConfigError(text("data: ", count, " samples cannot be used, and dataset_config.bad_sample_limit is ", limit,
                           "; ", folder_, "/", quarantine_file_name,
                           " lists them. Repair the data, or raise the limit. The last one: ", last));
}

SampleQuarantine::Samples SampleQuarantine::found() const {
  Samples samples;
  for (const auto& one : data_.quarantines->found()) samples[one.split].push_back(one.index);
  return samples;
}

/// Brings the lines to the disk. A disk that is full does not end the run: checkpoints have the samples too.
void SampleQuarantine::append(const std::string& lines) const {
  const auto path = folder_ + "/" + quarantine_file_name;
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
  const bool good = file >= 0 && ::write(file, lines.data(), lines.size()) == static_cast<ssize_t>(lines.size()) &&
                    ::fsync(file) == 0;
  if (!good) quarantine_logger.warning(text(path, ": could not be written; training continues"));
  if (file >= 0) ::close(file);
}

}  // namespace tessera::training
