#include "launch/tsrun/messages.h"

#include <signal.h>

#include <algorithm>
#include <array>
#include <climits>
#include <type_traits>

#include "framework/base/json.h"
#include "framework/worker/stop_signals.h"

namespace tessera::tsrun {
namespace {

constexpr int deepest = 8;  // maximum nesting of arrays and objects; a start message has 3
constexpr std::size_t longest_list = 100000, longest_words = 1 << 20;

/// The range of a number, inclusive.
struct Range {
  std::int64_t least = 0, most = 0;
};
constexpr Range rank_range = {0, (1 << 20) - 1}, count_range = {0, 1 << 20}, port_range = {0, 65535};
constexpr Range code_range = {0, 255}, signal_range = {0, 64}, any_int = {INT_MIN, INT_MAX};

/// The allowed content of a string.
enum class Form {
  words,  ///< anything but NUL
  line,   ///< no control characters: paths and names
  token,  ///< letters and digits, 1 to 64: names folders
  sum,    ///< 64 hexadecimal digits
};

bool fits(const std::string& value, Form form) {
  if (value.size() > longest_words) return false;
  const auto letter = [](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  const auto control = [](unsigned char c) { return c < 32 || c == 127; };
  if (form == Form::token)
    return !value.empty() && value.size() <= 64 && std::all_of(value.begin(), value.end(), letter);
  if (form == Form::sum) return value.size() == 64 && value.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (form == Form::line) return std::none_of(value.begin(), value.end(), control);
  return value.find('\0') == std::string::npos;
}

const char* words_of(Form form) {
  return form == Form::words  ? "a string"
         : form == Form::line ? "a string without control characters"
         : form == Form::sum  ? "a string of 64 hexadecimal digits"
                              : "a string of letters and digits";
}

template <class Type>
constexpr bool is_structure =
    std::is_class_v<Type> && !std::is_same_v<Type, std::string> && !std::is_same_v<Type, Environment>;

// The fields of every struct, with their limits. Reader and Writer below both use this list.

template <class Fields, class Message>
requires std::is_empty_v<Message>
void fields(Fields&, Message&) {}

template <class Fields>
void fields(Fields& f, Target& m) {
  f("words", m.words, Form::line);
  f("address", m.address, Form::line);
  f("port", m.port, port_range);
}

template <class Fields>
void fields(Fields& f, HostInfo& m) {
  f("node_rank", m.node_rank, Range{-1, rank_range.most});
  f("workers", m.workers, count_range);
  f("host", m.host, Form::line);
  f("address", m.address, Form::line);
  f("interface", m.interface, Form::line);
  f("network", m.network, Form::line);
  f("alias", m.alias, Form::line);
  f("machine", m.machine, Form::line);
  f("tsrun", m.tsrun, Form::words);
  f("folder", m.folder, Form::words);
  f("log_dir", m.log_dir, Form::words);
  f("worker_log_name", m.worker_log_name, Form::words);
  f("bind_core", m.bind_core, Form::words);
  f("program", m.program, Form::words);
  f("given", m.given, Form::words);
  f("environment", m.environment);
  f("cores", m.cores, count_range);
  f("left_job", m.left_job, Form::line);
  f("left_start", m.left_start, Range{0, INT_MAX});
  f("left_workers", m.left_workers, count_range);
  f("spare", m.spare);
  f("process", m.process, Range{0, INT_MAX});
  f("problem", m.problem, Form::words);
}

template <class Fields>
void fields(Fields& f, WorkerPlace& m) {
  f("rank", m.rank, rank_range);
  f("workers", m.workers, count_range);
  f("full_workers", m.full_workers, count_range);
  f("local_rank", m.local_rank, rank_range);
  f("local_workers", m.local_workers, count_range);
  f("node", m.node, rank_range);
  f("nodes", m.nodes, count_range);
  f("machine", m.machine, rank_range);
  f("master_addr", m.master_addr, Form::line);
  f("master_port", m.master_port, port_range);
  f("cluster_time_out", m.cluster_time_out, any_int);
  f("restart", m.restart, Range{0, INT_MAX});
  f("max_restarts", m.max_restarts, Range{0, INT_MAX});
  f("run_id", m.run_id, Form::words);
  f("role", m.role, Form::words);
  f("rank_table_file", m.rank_table_file, Form::words);
  f("torchrun", m.torchrun);
  f("job", m.job, Form::token);
}

template <class Fields>
void fields(Fields& f, WorkerEnd& m) {
  f("rank", m.rank, rank_range);
  f("code", m.code, code_range);
  f("signal", m.signal, signal_range);
  f("for_memory", m.for_memory);
  f("lost_peer", m.lost_peer);
  f("in_mpi_init", m.in_mpi_init);
  f("unfinished", m.unfinished);
  f("alive", m.alive);
  f("hung", m.hung);
  f("held", m.held, Range{-1, INT_MAX});
  f("host", m.host, Form::line);
  f("place", m.place, Form::words);
  f("reason", m.reason, Form::words);
  f("operation", m.operation, Form::words);
  f("last_lines", m.last_lines, Form::words);
  f("log_problem", m.log_problem, Form::words);
}

template <class Message>
constexpr bool has_only_words =
    std::disjunction_v<std::is_same<Message, FailedMessage>, std::is_same<Message, RunMessage>,
                       std::is_same<Message, LogFailedMessage>, std::is_same<Message, ResumeMessage>,
                       std::is_same<Message, WaitMessage>>;
template <class Fields, class Message>
requires has_only_words<Message>
void fields(Fields& f, Message& m) { f("words", m.words, Form::words); }

template <class Fields>
void fields(Fields& f, HelloMessage& m) {
  f("role", m.role, Form::token);
  f("nonce", m.nonce, Form::sum);
  f("host", m.host, Form::line);
}
template <class Fields>
void fields(Fields& f, ChallengeMessage& m) {
  f("nonce", m.nonce, Form::sum);
}
template <class Fields>
void fields(Fields& f, ProofMessage& m) {
  f("proof", m.proof, Form::sum);
}
template <class Fields>
void fields(Fields& f, ProvenMessage& m) {
  f("proof", m.proof, Form::sum);
}
template <class Fields>
void fields(Fields& f, HostMessage& m) {
  f("info", m.info);
  f("called", m.called, Form::line);
}
template <class Fields>
void fields(Fields& f, ListenMessage& m) {
  f("token", m.token, Form::token);
}
template <class Fields>
void fields(Fields& f, ListeningMessage& m) {
  f("token", m.token, Form::token);
  f("port", m.port, port_range);
}
template <class Fields>
void fields(Fields& f, TryMessage& m) {
  f("targets", m.targets);
}
template <class Fields>
void fields(Fields& f, TriedMessage& m) {
  f("failed", m.failed, Form::words);
}
template <class Fields>
void fields(Fields& f, PlaceMessage& m) {
  f("first_rank", m.first_rank, rank_range);
  f("ranks", m.ranks, count_range);
  f("workers", m.workers, count_range);
  f("forget", m.forget);
}
template <class Fields>
void fields(Fields& f, WelcomeMessage& m) {
  f("id", m.id, Form::token);
  f("salt", m.salt, Form::sum);
  f("alias", m.alias, Form::line);
  f("first_rank", m.first_rank, rank_range);
  f("ranks", m.ranks, count_range);
  f("workers", m.workers, count_range);
  f("forget", m.forget);
}
template <class Fields>
void fields(Fields& f, RefusedMessage& m) {
  f("code", m.code, code_range);
  f("words", m.words, Form::words);
}
template <class Fields>
void fields(Fields& f, EndMessage& m) {
  f("code", m.code, code_range);
  f("words", m.words, Form::words);
  f("keep", m.keep);
}
template <class Fields>
void fields(Fields& f, HeartbeatMessage& m) {
  f("place", m.place, Form::words);
}
template <class Fields>
void fields(Fields& f, SignalMessage& m) {
  f("signal", m.signal, worker::stop_signals);
}
template <class Fields>
void fields(Fields& f, StopMessage& m) {
  f("hang", m.hang);
}
template <class Fields>
void fields(Fields& f, AgentMessage& m) {
  f("host", m.host, Form::line);
  f("words", m.words, Form::words);
}
template <class Fields>
void fields(Fields& f, WorkerMessage& m) {
  f("attempt", m.attempt, Range{0, INT_MAX});
  f("rank", m.rank, rank_range);
  f("host", m.host, Form::line);
}
template <class Fields>
void fields(Fields& f, EndedMessage& m) {
  f("end", m.end);
}
template <class Fields>
void fields(Fields& f, RanksMessage& m) {
  f("ranks", m.ranks, count_range);
}
template <class Fields>
void fields(Fields& f, StartMessage& m) {
  f("place", m.place);
  f("host", m.host, Form::line);
  f("program", m.program, Form::words);
  f("folder", m.folder, Form::words);
  f("environment", m.environment);
  f("bind_core", m.bind_core, Form::words);
  f("log", m.log, Form::words);
  f("launch_folder", m.launch_folder, Form::words);
  f("order", m.order, Form::words);
  f("header", m.header, Form::words);
  f("lease", m.lease, Range{0, INT_MAX});
  f("leader_time_out", m.leader_time_out, Range{1, INT_MAX});
  f("longest_save", m.longest_save, Range{0, INT_MAX});
}
template <class Fields>
void fields(Fields& f, OrdersMessage& m) {
  f("secret", m.secret, Form::sum);
  f("words", m.words, Form::words);
  f("called", m.called, Form::line);
  f("node_rank", m.node_rank, rank_range);
  f("workers", m.workers, count_range);
  f("spare", m.spare);
  f("environment", m.environment);
}

/// Reads fields from a JSON object; problem() names the first field that is missing or wrong, or unknown entries.
class Reader {
 public:
  Reader(const Json& object, std::string name, std::size_t known = 0)
      : object_(object), name_(std::move(name)), taken_(known) {
    if (!object_.is_object()) complain(name_, "an object");
  }

  template <class Type, class... Limit>
  void operator()(const char* field, Type& into, const Limit&... limit) {
    if (!problem_.empty()) return;
    const auto found = object_.find(field);
    const auto name = name_.empty() ? std::string(field) : text(name_, ".", field);
    if (found == nullptr) return complain(name, "required");
    taken_++;
    take(*found, name, into, limit...);
  }

  template <class Message>
  void read(Message& into) {
    if (problem_.empty()) fields(*this, into);
    if (problem_.empty() && taken_ != object_.size())
      problem_ = text(name_.empty() ? "the message" : name_, " has entries that are no fields of it");
  }
  const std::string& problem() const { return problem_; }

 private:
  void complain(const std::string& name, const std::string& expected) {
    problem_ = text("'", name, "' is not ", expected == "required" ? "there" : expected);
  }

  void take(const Json& value, const std::string& name, int& into, Range range) {
    const bool small = value.is_number_unsigned() ? value.get<std::uint64_t>() <= INT_MAX
                                                  : value.is_number_integer() && value.get<std::int64_t>() >= INT_MIN;
    const auto number = small ? value.get<std::int64_t>() : 0;
    if (!small || number < range.least || number > range.most)
      return complain(name, text("a whole number from ", range.least, " to ", range.most));
    into = static_cast<int>(number);
  }
  template <std::size_t count>
  void take(const Json& value, const std::string& name, int& into, const std::array<int, count>& words) {
    take(value, name, into, any_int);
    if (problem_.empty() && std::find(words.begin(), words.end(), into) == words.end())
      complain(name, "a signal that is passed on");
  }
  void take(const Json& value, const std::string& name, bool& into) {
    if (!value.is_boolean()) return complain(name, "true or false");
    into = value.get<bool>();
  }
  void take(const Json& value, const std::string& name, std::string& into, Form form) {
    if (!value.is_string() || !fits(value.string(), form)) return complain(name, words_of(form));
    into = value.string();
  }
  void take(const Json& value, const std::string& name, Environment& into) {
    if (!value.is_object()) return complain(name, "an object of strings");
    for (const auto& [key, one] : value.items()) {
      if (key.empty() || key.find_first_of(std::string("=\0", 2)) != std::string::npos)
        return complain(name, "a map of environment variables");
      take(one, name, into[key], Form::words);
      if (!problem_.empty()) return;
    }
  }
  template <class Item, class... Limit>
  void take(const Json& value, const std::string& name, std::vector<Item>& into, const Limit&... limit) {
    if (!value.is_array() || value.size() > longest_list) return complain(name, "a list");
    into.resize(value.size());
    for (std::size_t i = 0; i < into.size() && problem_.empty(); i++) take(value[i], name, into[i], limit...);
  }
  template <class Structure>
  requires is_structure<Structure>
  void take(const Json& value, const std::string& name, Structure& into) {
    Reader inside(value, name);
    inside.read(into);
    problem_ = inside.problem();
  }

  const Json& object_;
  std::string name_, problem_;
  std::size_t taken_;
};

/// Writes fields to a JSON object.
class Writer {
 public:
  explicit Writer(Json& object) : object_(object) {}
  template <class Type, class... Limit>
  void operator()(const char* field, Type& from, const Limit&...) {
    object_[field] = value_of(from);
  }

 private:
  template <class Type>
  static Json value_of(Type& value) {
    if constexpr (std::is_same_v<Type, std::string>) {
      auto words = value;
      std::replace(words.begin(), words.end(), '\0', ' ');
      return words;
    } else if constexpr (is_structure<Type>) {
      Json object = Json::object();
      Writer writer(object);
      fields(writer, value);
      return object;
    } else {
      return value;
    }
  }
  template <class Item>
  static Json value_of(std::vector<Item>& items) {
    Json list = Json::array();
    for (auto& item : items) list.push_back(value_of(item));
    return list;
  }
  Json& object_;
};

/// Whether arrays and objects are nested too deeply; does not parse the line.
bool is_too_deep(const std::string& line) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < line.size(); i++) {
    const char c = line[i];
    if (in_string) {
      if (c == '\\') i++;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > deepest) return true;
    } else if (c == '}' || c == ']') {
      depth--;
    }
  }
  return false;
}

/// Text for a log about a message kind that any program may have sent.
std::string printable(const std::string& kind) {
  return kind.size() <= 32 && fits(kind, Form::token) ? text("'", kind, "'") : "with an invalid name";
}

template <class Any, std::size_t index = 0>
std::optional<Any> parse_as(const Json& object, const std::string& kind, std::string& why) {
  if constexpr (index < std::variant_size_v<Any>) {
    using Message = std::variant_alternative_t<index, Any>;
    if (kind != Message::kind) return parse_as<Any, index + 1>(object, kind, why);
    Message message;
    Reader reader(object, "", 1);
    reader.read(message);
    if (reader.problem().empty()) return Any(std::in_place_index<index>, std::move(message));
    why = text("ill-formed message '", kind, "': ", reader.problem());
    return {};
  } else {
    why = text("a message ", printable(kind), ", which is not expected here");
    return {};
  }
}

}  // namespace

template <class Any>
std::optional<Any> parse(const std::string& line, std::string& why) {
  if (is_too_deep(line)) {
    why = "a line that nests too deeply";
    return {};
  }
  const auto object = parse_json(line);
  const auto kind = object.find("is");
  if (kind == nullptr || !kind->is_string()) {
    why = "a line that is not a message of tsrun";
    return {};
  }
  return parse_as<Any>(object, kind->string(), why);
}

std::string encode(AnyMessage message) {
  Json object;
  std::visit(
      [&](auto& one) {
        object["is"] = one.kind;
        Writer writer(object);
        fields(writer, one);
      },
      message);
  return object.dump();
}

template std::optional<AnyMessage> parse(const std::string&, std::string&);
template std::optional<UnauthenticatedMessage> parse(const std::string&, std::string&);
template std::optional<RendezvousMessage> parse(const std::string&, std::string&);
template std::optional<PendingMessage> parse(const std::string&, std::string&);
template std::optional<FromHostMessage> parse(const std::string&, std::string&);
template std::optional<FromWorkerMessage> parse(const std::string&, std::string&);
template std::optional<ToHostMessage> parse(const std::string&, std::string&);
template std::optional<ToWorkerMessage> parse(const std::string&, std::string&);
template std::optional<AnswerMessage> parse(const std::string&, std::string&);
template std::optional<InputMessage> parse(const std::string&, std::string&);
}  // namespace tessera::tsrun
