#include "framework/parallel/context_options.h"

#include <algorithm>
#include <numeric>

namespace tessera::parallel {
namespace {

const std::string group = "parallel_config.";

ContextExchange exchange_of(ContextAlgorithm algorithm) {
  switch (algorithm) {
    case ContextAlgorithm::megatron_cp_algo:
      return ContextExchange::p2p;
    case ContextAlgorithm::ulysses_cp_algo:
      return ContextExchange::a2a;
    case ContextAlgorithm::hybrid_cp_algo:
      return ContextExchange::a2a_p2p;
    case ContextAlgorithm::kvallgather_cp_algo:
      return ContextExchange::all_gather;
  }
  return ContextExchange::p2p;
}

std::string word_of(ContextExchange exchange) { return options::OptionType<ContextExchange>::write(exchange).scalar; }

/// As the options say it, of all layers or one for each.
std::vector<ContextExchange> exchanges_given(const ParallelOptions& o) {
  if (!o.cp_comm_type.empty()) return o.cp_comm_type.layers;
  return {o.context_parallel_algo ? exchange_of(*o.context_parallel_algo) : ContextExchange::p2p};
}

bool has_hybrid(const ParallelOptions& o) {
  const auto all = exchanges_given(o);
  return std::find(all.begin(), all.end(), ContextExchange::a2a_p2p) != all.end();
}

std::int64_t first_level(const ParallelOptions& o) {
  const auto& sizes = o.hierarchical_context_parallel_sizes;
  return sizes && !sizes->empty() ? sizes->front() : o.ulysses_degree_in_cp.value_or(1);
}

/// One level of a hybrid may be a single rank: then it is the other level alone.
ContextExchange simplest(ContextExchange exchange, const ParallelOptions& o) {
  if (exchange != ContextExchange::a2a_p2p) return exchange;
  if (first_level(o) == 1) return ContextExchange::p2p;
  return first_level(o) == o.context_parallel_size ? ContextExchange::a2a : exchange;
}

std::vector<ContextExchange> exchanges(const ParallelOptions& o) {
  auto all = exchanges_given(o);
  for (auto& one : all) one = simplest(one, o);
  return all;
}

nn::ContextRank rank_of(const ParallelOptions& o, int rank) {
  const auto all = exchanges(o);
  const bool contiguous = std::all_of(all.begin(), all.end(), [](auto one) { return one == ContextExchange::a2a; });
  return {rank, static_cast<int>(o.context_parallel_size), contiguous};
}

std::string numbers(const std::vector<std::int64_t>& all, const char* last) {
  std::string words;
  for (std::size_t i = 0; i < all.size(); ++i) words += text(i == 0 ? "" : i + 1 == all.size() ? last : ", ", all[i]);
  return words;
}

class Mistakes {
 public:
  Mistakes(const ParallelOptions& o, const CutExtents& e, const Towers& towers) : o_(o), e_(e), towers_(towers) {}

  std::vector<options::Finding> all() {
    agreement();
    levels();
    if (!found_.empty()) return found_;
    sequence();
    for (const auto& one : e_.heads)
      for (const auto exchange : {ContextExchange::a2a, ContextExchange::a2a_p2p}) heads(one, exchange);
    return found_;
  }

 private:
  std::int64_t ranks() const { return o_.context_parallel_size; }
  void add(const char* rule, const std::string& option, std::string message, std::string advice) {
    found_.push_back({option, std::move(message), std::move(advice), rule});
  }

  void agreement() {
    const auto& given = o_.cp_comm_type.layers;
    if (given.size() > 1 && static_cast<std::int64_t>(given.size()) != towers_.layers())
      add("PAR25", group + "cp_comm_type",
          text("cp_comm_type has ", given.size(), " words, but ", towers_.options(), " is ", towers_.layers()),
          "give one word for all layers, or one for each");
    if (given.empty() || !o_.context_parallel_algo) return;
    const auto meant = exchange_of(*o_.context_parallel_algo);
    const auto other = std::find_if(given.begin(), given.end(), [&](auto one) { return one != meant; });
    if (other != given.end())
      add("one context exchange", group + "context_parallel_algo",
          text("context_parallel_algo ", options::OptionType<ContextAlgorithm>::write(*o_.context_parallel_algo).scalar,
               " is cp_comm_type ", word_of(meant), ", but cp_comm_type is ", word_of(*other)),
          "leave one of the two out");
  }

  void levels() {
    const auto& sizes = o_.hierarchical_context_parallel_sizes;
    const std::string key = group + "hierarchical_context_parallel_sizes";
    const auto fitting = text("give two sizes whose product is ", ranks(), ", such as ", pair_that_fits());
    if (sizes) {
      double product = 1;
      for (const auto size : *sizes) product *= static_cast<double>(size);
      if (product != static_cast<double>(ranks()))
        add("PAR4", key,
            text("the product of hierarchical_context_parallel_sizes [", numbers(*sizes, ", "),
                 "] is not context_parallel_size ", ranks()),
            fitting);
      else if (has_hybrid(o_) && sizes->size() != 2)
        add("PAR4", key,
            text("hierarchical_context_parallel_sizes has ", sizes->size(),
                 " sizes, but cp_comm_type a2a+p2p has two levels"),
            fitting);
    }
    if (!has_hybrid(o_)) return;
    const auto& degree = o_.ulysses_degree_in_cp;
    if (!sizes && !degree)
      add("PAR4", key,
          text("cp_comm_type a2a+p2p (hybrid_cp_algo) needs the sizes of its two levels, of together ", ranks(),
               " ranks"),
          fitting + ", or ulysses_degree_in_cp");
    if (degree && ranks() % *degree != 0)
      add("PAR4", group + "ulysses_degree_in_cp",
          text("ulysses_degree_in_cp ", *degree, " does not divide context_parallel_size ", ranks()),
          text("give ", numbers(divisors(ranks()), " or ")));
    else if (degree && sizes && !sizes->empty() && sizes->front() != *degree)
      add("PAR4", group + "ulysses_degree_in_cp",
          text("ulysses_degree_in_cp is ", *degree, ", but hierarchical_context_parallel_sizes begins with ",
               sizes->front()),
          "leave one of the two out");
  }

  void sequence() {
    const auto parts = rank_of(o_, 0).parts();
    const auto all = o_.sequence_parallel ? std::lcm(parts, ranks() * o_.tensor_model_parallel_size) : parts;
    if (e_.seq_length % all == 0) return;
    const auto below = e_.seq_length / all * all;
    const bool chunks = e_.seq_length % parts != 0;
    const auto why = chunks && parts > ranks() ? text("2 x context_parallel_size ", ranks())
                     : chunks                  ? text("context_parallel_size ", ranks())
                              : text("context_parallel_size ", ranks(), " x tensor_model_parallel_size ",
                                     o_.tensor_model_parallel_size, " (sequence_parallel)");
    add(chunks ? "M7" : "PAR10", "model_config.seq_length",
        text("seq_length ", e_.seq_length, " is not divisible by ", why),
        below > 0 ? text("give ", below, " or ", below + all) : text("give ", all));
  }

  void heads(const CutExtents::Heads& of, ContextExchange exchange) {
    const auto used = exchanges(o_);
    const auto tensor = o_.tensor_model_parallel_size;
    if (std::find(used.begin(), used.end(), exchange) == used.end() || of.heads % tensor != 0) return;
    const auto ranks_of_heads = exchange == ContextExchange::a2a ? ranks() : first_level(o_);
    const auto queries = of.heads / tensor, keys = std::max<std::int64_t>(1, of.groups / tensor);
    const auto fits = [&](std::int64_t n) { return queries % n == 0 && (keys % n == 0 || n % keys == 0); };
    if (fits(ranks_of_heads)) return;
    auto fitting = divisors(queries);
    fitting.erase(std::remove_if(fitting.begin(), fitting.end(), [&](auto n) { return !fits(n); }), fitting.end());
    const bool by_heads = queries % ranks_of_heads != 0;
    add("heads of context parallelism",
        group + (exchange == ContextExchange::a2a         ? "context_parallel_size"
                 : o_.hierarchical_context_parallel_sizes ? "hierarchical_context_parallel_sizes"
                                                          : "ulysses_degree_in_cp"),
        text("cp_comm_type ", word_of(exchange), " divides ", by_heads ? queries : keys,
             by_heads ? " query heads (" : " key and value heads (",
             options::name_in_group(by_heads ? of.option : of.groups_option), " ", by_heads ? of.heads : of.groups,
             " / tensor_model_parallel_size ", tensor, ") among ", ranks_of_heads, " ranks, which ",
             by_heads ? "does not divide them" : "neither divides them nor is a multiple"),
        text("heads can be divided among ", numbers(fitting, " or "),
             " ranks; or give cp_comm_type p2p or all_gather, ", "which divide no heads"));
  }

  static std::vector<std::int64_t> divisors(std::int64_t of) {
    std::vector<std::int64_t> all;
    for (std::int64_t n = 1; n <= std::min<std::int64_t>(of, most_tried); ++n)
      if (of % n == 0) all.push_back(n);
    return all;
  }
  std::string pair_that_fits() const {
    for (const auto n : divisors(ranks()))
      if (n > 1 && n < ranks()) return text("[", n, ", ", ranks() / n, "]");
    return text("[1, ", ranks(), "]");
  }

  static constexpr std::int64_t most_tried = 4096;
  const ParallelOptions& o_;
  const CutExtents& e_;
  const Towers& towers_;
  std::vector<options::Finding> found_;
};

}  // namespace

ContextLayout context_layout(const ParallelOptions& o, int rank) {
  if (o.context_parallel_size == 1) return {};
  return {rank_of(o, rank), exchanges(o)};
}

std::int64_t context_heads(const ParallelOptions& o) {
  if (o.context_parallel_size == 1) return 1;
  const auto all = exchanges(o);
  return std::find(all.begin(), all.end(), ContextExchange::a2a_p2p) == all.end() ? 1 : first_level(o);
}

std::vector<options::Finding> mistakes_of_context(const ParallelOptions& o, const CutExtents& e, const Towers& towers) {
  if (o.context_parallel_size == 1) return {};
  return Mistakes(o, e, towers).all();
}

}  // namespace tessera::parallel
