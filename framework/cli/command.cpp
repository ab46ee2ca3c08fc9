#include "framework/cli/command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cmath>
#include <iostream>

#include "framework/base/help_text.h"
#include "framework/base/home.h"
#include "framework/base/visible_text.h"
#include "framework/log/log.h"
#include "framework/options/report.h"

namespace tessera::cli {
namespace {

const log::Logger command_logger("tessera");

constexpr const char* setting = "group.key=value";
constexpr int wrong_arguments = 2;

std::vector<const CLI::App*> below(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* sub : below(app)) names.push_back(sub->get_name());
  return names;
}

std::vector<std::string> options_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto* option : app.get_options())
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

/// The mistake in the command line, with the closest known name for an unknown one.
std::string complaint(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& words) {
  const CLI::App* command = &app;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto& word = words[i];
    if (const auto* option = word[0] == '-' ? command->get_option_no_throw(word) : nullptr) {
      if (option->get_items_expected_min() > 0) ++i;  // the next word is its value
      continue;
    }
    const auto names = commands_of(*command);
    if (std::find(names.begin(), names.end(), word) != names.end()) {
      command = command->get_subcommand(word);
      continue;
    }
    const bool option = word.rfind("--", 0) == 0;
    const auto known = option ? options_of(*command) : names;
    const auto name = word.substr(0, word.find('='));
    if (known.empty() || std::find(known.begin(), known.end(), name) != known.end() || (!option && word[0] == '-'))
      continue;
    const auto hint = options::did_you_mean(name, known);
    return text("no ", option ? "option" : "command", " '", name, "'", hint.empty() ? "" : "; ", hint);
  }
  return error.what();
}

CommandNode::Option facts_of(const CLI::Option& option) {
  CommandNode::Option out;
  out.doc = option.get_description();
  out.required = option.get_required();
  out.by_place = option.get_positional();
  if (out.by_place) out.names.push_back(option.get_name(true));
  for (const auto& name : option.get_snames()) out.names.push_back("-" + name);
  for (const auto& name : option.get_lnames()) out.names.push_back("--" + name);
  const bool takes = option.get_items_expected_max() > 0;
  if (takes && !out.by_place) out.value = option.get_type_name().empty() ? "VALUE" : option.get_type_name();
  out.sets = out.value == setting;
  return out;
}

/// Whether `words` are a number with a 0 before other digits, or in hexadecimal. The library would read an octal one.
bool is_not_decimal(const std::string& words) {
  const auto first = words.find_first_not_of(" \t\n+-");
  return first != std::string::npos && words[first] == '0' && first + 1 < words.size() &&
         std::isalnum(static_cast<unsigned char>(words[first + 1])) != 0 && words.find_first_of("eE.") != first + 1;
}

/// Rejects values that are not a `Number` for which `holds`; `expected` says which one is.
template <class Number, class Holds>
CLI::Validator number_check(const std::string& expected, Holds holds, const std::string& shown = "") {
  return {[=](const std::string& words) {
            Number number{};
            if (is_not_decimal(words))
              return text("'", shortened(words), "' is not in decimal digits without leading zeros");
            const bool good = CLI::detail::lexical_cast(words, number) && holds(number);
            return good ? std::string() : text("'", shortened(words), "' is not ", expected);
          },
          shown};
}

/// Rejects NaN, which range checks accept: it is neither below nor above any bound.
CLI::Validator finite() {
  return number_check<double>("a finite number", [](double number) { return std::isfinite(number); });
}

template <class Number>
CLI::Validator whole() {
  return number_check<Number>(
      text("a whole number from ", std::numeric_limits<Number>::min(), " to ", std::numeric_limits<Number>::max()),
      [](Number) { return true; });
}

template <class Number>
CLI::Validator range(Number low, Number high) {
  return number_check<Number>(
      text("a number from ", low, " to ", high), [=](Number number) { return number >= low && number <= high; },
      text("[", low, " - ", high, "]"));
}

/// The pages of help, at most help_width columns wide.
class Page final : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    return help_entry("  " + make_option_name(option, is_positional) + make_option_opts(option),
                      make_option_desc(option));
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return help_entry("  " + command->get_display_name(true), command->get_description());
  }
  std::string make_description(const CLI::App* app) const override { return wrapped(app->get_description(), 0) + "\n"; }
  std::string make_usage(const CLI::App* app, std::string name) const override {
    auto words = CLI::Formatter::make_usage(app, std::move(name));
    words.erase(words.find_last_not_of('\n') + 1);
    return wrapped(words, 7) + "\n";
  }
};

/// A leading "~/" of a word is the home folder, also behind "--option=", where shells leave it.
constexpr const char* home = "home";
CLI::Validator in_home() {
  return {[](std::string& words) {
            words = with_home(words);
            return std::string();
          },
          "", home};
}

}  // namespace

CommandOption* CommandOption::required() {
  option_->required();
  return this;
}
CommandOption* CommandOption::type_name(const std::string& name) {
  option_->type_name(name);
  return this;
}
CommandOption* CommandOption::show_default() {
  option_->capture_default_str();
  return this;
}
CommandOption* CommandOption::optional_value() {
  option_->expected(0, 1);
  return this;
}

CommandOption* CommandOption::one_value_each() {
  option_->allow_extra_args(false);
  return this;
}
CommandOption* CommandOption::delimiter(char sign) {
  option_->delimiter(sign);
  return this;
}
CommandOption* CommandOption::one_of(const std::vector<std::string>& words) {
  option_->check(CLI::IsMember(words));
  return suggest(words);
}
CommandOption* CommandOption::suggest(std::vector<std::string> words) {
  words_ = std::move(words);
  return this;
}
CommandOption* CommandOption::suggest_as(std::string key) {
  key_ = std::move(key);
  return this;
}
CommandOption* CommandOption::positive() {
  option_->check(number_check<double>(
      "a number > 0", [](double number) { return number > 0; }, "POSITIVE"));
  return this;
}
CommandOption* CommandOption::not_negative() {
  option_->check(number_check<double>(
      "a number >= 0", [](double number) { return number >= 0; }, "NONNEGATIVE"));
  return this;
}
CommandOption* CommandOption::between(std::int64_t low, std::int64_t high) {
  option_->check(range(low, high));
  return this;
}
CommandOption* CommandOption::between(double low, double high) {
  option_->check(range(low, high));
  return this;
}
CommandOption* CommandOption::as_written() {
  option_->get_validator(home)->active(false);
  return this;
}
CommandOption* CommandOption::excludes(const CommandOption* other) {
  option_->excludes(other->option_);
  return this;
}

Command::Command(const std::string& name, const std::string& doc, const std::string& version)
    : own_(std::make_unique<CLI::App>(doc, name)), app_(own_.get()) {
  app_->formatter(std::make_shared<Page>());  // inherited by the subcommands
  app_->set_version_flag("--version", version);
}
Command::Command(CLI::App* app) : app_(app) {}
Command::~Command() = default;

Command* Command::add_subcommand(const std::string& name, const std::string& doc) {
  commands_.push_back(std::unique_ptr<Command>(new Command(app_->add_subcommand(name, doc))));
  return commands_.back().get();
}
void Command::require_subcommand() { app_->require_subcommand(1); }

CommandOption* Command::keep(CLI::Option* option) {
  options_.push_back(std::make_unique<CommandOption>(option));
  return options_.back().get();
}

CommandOption* Command::add_option(const std::string& names, std::string& value, const std::string& doc) {
  return keep(app_->add_option(names, value, doc)->transform(in_home()));
}
CommandOption* Command::add_option(const std::string& names, std::vector<std::string>& values, const std::string& doc) {
  return keep(app_->add_option(names, values, doc)->transform(in_home()));
}
CommandOption* Command::add_option(const std::string& names, std::vector<std::int32_t>& values,
                                   const std::string& doc) {
  return keep(app_->add_option(names, values, doc)->check(whole<std::int32_t>()));
}
CommandOption* Command::add_option(const std::string& names, std::int64_t& value, const std::string& doc) {
  return keep(app_->add_option(names, value, doc)->check(whole<std::int64_t>()));
}
CommandOption* Command::add_option(const std::string& names, std::uint64_t& value, const std::string& doc) {
  return keep(app_->add_option(names, value, doc)->check(whole<std::uint64_t>()));
}
CommandOption* Command::add_option(const std::string& names, int& value, const std::string& doc) {
  return keep(app_->add_option(names, value, doc)->check(whole<int>()));
}
CommandOption* Command::add_option(const std::string& names, double& value, const std::string& doc) {
  return keep(app_->add_option(names, value, doc)->check(finite()));
}
CommandOption* Command::add_option(const std::string& names, std::function<void(const std::string&)> take,
                                   const std::string& doc) {
  return keep(app_->add_option_function<std::string>(names, std::move(take), doc)->transform(in_home()));
}
CommandOption* Command::add_flag(const std::string& names, bool& value, const std::string& doc) {
  return keep(app_->add_flag(names, value, doc));
}
void Command::callback(std::function<void()> work) { app_->callback(std::move(work)); }

int Command::run(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app_->exit(error);  // help, version
    command_logger.error(text(app_->get_name(), ": ", complaint(*app_, error, {argv + std::min(argc, 1), argv + argc}),
                              "\n`tessera --help` lists commands, `tessera COMMAND --help` what one takes."));
    return wrong_arguments;
  }
}

std::vector<CommandNode> Command::tree() const {
  std::vector<CommandNode> all;
  add_nodes(app_->get_name(), all);
  return all;
}

void Command::add_nodes(const std::string& path, std::vector<CommandNode>& all) const {
  CommandNode node{path, app_->get_description(), {}, {}};
  for (const auto* option : app_->get_options()) {
    auto& facts = node.options.emplace_back(facts_of(*option));
    for (const auto& ours : options_)
      if (ours->option_ == option) facts.words = ours->words_, facts.key = ours->key_;
  }
  for (const auto* sub : below(*app_)) node.commands.emplace_back(sub->get_name(), sub->get_description());
  all.push_back(std::move(node));
  for (const auto& sub : commands_) sub->add_nodes(path + " " + sub->app_->get_name(), all);
}

}  // namespace tessera::cli
