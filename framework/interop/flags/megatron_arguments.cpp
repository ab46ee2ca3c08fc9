#include "framework/interop/flags/megatron_arguments.h"

#include "framework/base/error.h"
#include "framework/base/json.h"
#include "framework/interop/flags/argument_rules.h"
#include "framework/interop/flags/flag_words.h"

namespace tessera::flags {
namespace {

/// "list of 2 float" -> "float"
std::string item_type(const std::string& type) {
  const std::string list = "list of ";
  if (type.rfind(list, 0) != 0) return "text";
  const auto word = type.find_first_not_of("0123456789 ", list.size());
  return word == std::string::npos ? "text" : type.substr(word);
}

/// A value of the option type `type` ("int or null") as JSON.
Json typed(const options::Value& value, const std::string& type) {
  if (value.kind == options::Value::Kind::none || (value.kind == options::Value::Kind::scalar && value.scalar.empty()))
    return nullptr;
  if (value.kind == options::Value::Kind::list) {
    auto all = Json::array();
    for (const auto& item : value.items) all.push_back(typed(item, item_type(type)));
    return all;
  }
  bool flag = false;
  std::int64_t whole = 0;
  double number = 0;
  if (type.rfind("true", 0) == 0 && options::OptionType<bool>::read(value, flag)) return flag;
  if (type.rfind("int", 0) == 0 && options::OptionType<std::int64_t>::read(value, whole)) return whole;
  if (type.rfind("float", 0) == 0 && options::OptionType<double>::read(value, number)) return number;
  return value.scalar;
}

/// Whether two values of an option are the same, also 1 and 1.0.
bool same_argument(const options::Value& a, const options::Value& b) {
  double x = 0, y = 0;
  if (options::OptionType<double>::read(a, x) && options::OptionType<double>::read(b, y)) return x == y;
  return text(a) == text(b);
}

/// A table read backwards.
class Backwards {
 public:
  Backwards(const recipe::Recipe& recipe, const FlagTable& table, options::Report& report)
      : recipe_(recipe), table_(table), report_(report) {}

  Json arguments() {
    Json all = Json::object();
    for (const auto& row : table_.rows())
      if (!row.to.empty()) all[row.dest] = argument(row);
    return all;
  }

 private:
  Json argument(const FlagRow& row) {
    const auto* option = option_at(row.option(), recipe_.facts);
    auto type = option ? option->type : "text";
    if (row.option() != row.to) type = item_type(type);
    const auto value = value_of(row);
    if (row.kind == FlagRow::Kind::fixed) return switched(row, same_argument(value, options::Value::of(row.fixed, {})));
    if (row.kind == FlagRow::Kind::words) return their_word(row, value);
    if (row.empty_text && value.kind == options::Value::Kind::scalar && value.scalar.empty()) return "";
    if (row.takes == FlagRow::Takes::many && value.kind == options::Value::Kind::scalar)
      return Json::array({typed(value, type)});
    return typed(value, type);
  }

  /// The value in the recipe; their default where the option belongs to what is not chosen.
  options::Value value_of(const FlagRow& row) const {
    const auto* value = recipe_.resolved.at(row.option());
    if (!value) return row.absent.empty() ? options::Value{} : options::Value::of(row.absent, {});
    const auto bracket = row.to.find('[');
    if (bracket == std::string::npos) return *value;
    const auto item = static_cast<std::size_t>(std::stoul(row.to.substr(bracket + 1)));
    return item < value->items.size() ? value->items[item] : options::Value{};
  }

  /// A bare flag: --x sets x, --no-x and --disable-x clear it.
  static Json switched(const FlagRow& row, bool given) {
    const bool clears = (row.flag.rfind("--no-", 0) == 0 || row.flag.rfind("--disable-", 0) == 0) &&
                        row.flag.find(dashed(row.dest)) != 2;
    return given != clears;
  }

  static std::string dashed(std::string name) {
    for (auto& letter : name)
      if (letter == '_') letter = '-';
    return name;
  }

  Json their_word(const FlagRow& row, const options::Value& value) {
    if (value.kind == options::Value::Kind::none) return nullptr;
    if (value.kind == options::Value::Kind::list) {
      auto all = Json::array();
      for (const auto& item : value.items) all.push_back(their_word(row, item));
      return all;
    }
    // What nobody gave is what the flag's absence means.
    const bool usual = !row.absent.empty() && same_argument(value, options::Value::of(row.absent, {}));
    if (usual && !row.theirs.empty() && was_not_given(value.origin)) return row.theirs;
    for (const auto& [theirs, ours] : row.words)
      if (same_argument(value, options::Value::of(ours, {}))) return theirs;
    if (usual && !row.theirs.empty()) return row.theirs;
    if (value.origin.layer > 0 && !usual)
      report_.problem(value.origin, row.option(),
                      text(row.option(), " ", value, " has no counterpart in ", table_.doc()),
                      text("their ", row.flag, " takes ", words_of(row)));
    return nullptr;
  }

  static std::string words_of(const FlagRow& row) {
    std::string all;
    for (const auto& [theirs, ours] : row.words) all += (all.empty() ? "" : ", ") + theirs;
    return all;
  }

  const recipe::Recipe& recipe_;
  const FlagTable& table_;
  options::Report& report_;
};

bool is_left_out(const FlagRow& row) {
  return row.kind == FlagRow::Kind::ignored || row.kind == FlagRow::Kind::refused;
}

}  // namespace

std::set<std::string> arguments_left_out(const FlagTable& table) {
  std::set<std::string> all;
  for (const auto& row : table.rows()) all.insert(row.dest);
  for (const auto& row : table.rows())
    if (!is_left_out(row)) all.erase(row.dest);
  return all;
}

Json megatron_arguments(const recipe::Recipe& recipe, std::int64_t world, const FlagTable& table,
                        options::Report& report) {
  auto all = Backwards(recipe, table, report).arguments();
  validate_arguments(recipe, world, all);
  for (const auto& name : arguments_left_out(table)) all.erase(name);
  return all.sorted();
}

}  // namespace tessera::flags
