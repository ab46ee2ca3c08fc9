#include "framework/interop/flags/megatron_rule_lists.h"

#include <algorithm>

#include "framework/base/error.h"

namespace tessera::flags {
namespace {

/// "--a, --b and --c"
std::string list_of_flags(const RuleFlags& flags, const char* last) {
  std::string all;
  for (std::size_t i = 0; i < flags.size(); ++i)
    all += (i == 0 ? "" : i + 1 < flags.size() ? ", " : text(" ", last, " ")) + flags[i];
  return all;
}

std::ptrdiff_t number_given(const AskedFlags& asked, const RuleFlags& flags) {
  return std::count_if(flags.begin(), flags.end(), [&](const auto& flag) { return asked.has(flag); });
}

RuleFlags with_first(const char* flag, RuleFlags others) {
  others.insert(others.begin(), flag);
  return others;
}

}  // namespace

MegatronRule rule(const char* name, RuleFlags flags, const char* message, const char* advice,
                  std::function<bool(const AskedFlags&)> broken) {
  return {name, std::move(flags), message, advice, std::move(broken)};
}

MegatronRule required(const char* name, RuleFlags flags) {
  auto broken = [flags](const AskedFlags& a) { return number_given(a, flags) == 0; };
  auto message = flags[0] + " is missing";
  return {name, std::move(flags), std::move(message), "give it", std::move(broken)};
}

MegatronRule exclusive(const char* name, RuleFlags flags) {
  auto broken = [flags](const AskedFlags& a) { return number_given(a, flags) > 1; };
  auto message = text(list_of_flags(flags, "and"), " are mutually exclusive");
  return {name, std::move(flags), std::move(message), "keep one of them", std::move(broken)};
}

MegatronRule needs(const char* name, const char* flag, RuleFlags others) {
  auto broken = [flag, others](const AskedFlags& a) {
    return a.has(flag) && number_given(a, others) < static_cast<std::ptrdiff_t>(others.size());
  };
  const auto all = list_of_flags(others, "and");
  return {name, with_first(flag, std::move(others)), text(flag, " needs ", all),
          text("give ", all, ", or leave ", flag, " out"), std::move(broken)};
}

MegatronRule excludes(const char* name, const char* flag, RuleFlags others) {
  auto broken = [flag, others](const AskedFlags& a) { return a.has(flag) && number_given(a, others) > 0; };
  auto message = text(flag, " is incompatible with ", list_of_flags(others, "and"));
  return {name, with_first(flag, std::move(others)), std::move(message), text("leave ", flag, " or the others out"),
          std::move(broken)};
}

MegatronRule replaced(const char* name, const char* flag, const char* by) {
  return {name, {flag}, text(flag, " was removed from Megatron-LM"), text("give ", by), [flag](const AskedFlags& a) {
            return a.has(flag);
          }};
}

std::vector<MegatronRule> one_list(const std::vector<std::vector<MegatronRule>>& parts) {
  std::vector<MegatronRule> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace tessera::flags
