#include "framework/watch/server.h"

#include <httplib.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/start_threads.h"

namespace tessera::watch {
namespace {

std::string random_token() {
  std::array<unsigned char, 16> bytes = {};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw IoError("the system gives no random bytes for the token of the server");
  std::string token;
  for (const auto byte : bytes) {
    constexpr std::string_view digits = "0123456789abcdef";
    token += digits[byte >> 4U];
    token += digits[byte & 15U];
  }
  return token;
}

/// Takes the same time for each wrong token.
bool same(const std::string& one, const std::string& other) {
  if (one.size() != other.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < one.size(); ++i)
    difference |= static_cast<unsigned>(static_cast<unsigned char>(one[i]) ^ static_cast<unsigned char>(other[i]));
  return difference == 0;
}

void answer(httplib::Response& response, int status, const std::string& words) {
  response.status = status;
  response.set_content(words + "\n", "text/plain; charset=utf-8");
}

/// The threads that answer. A connection that sends no request holds one until its time is over, so there are many. The
/// library's own pool ends the process if the system refuses one of its threads.
class AnsweringThreads : public httplib::TaskQueue {
 public:
  AnsweringThreads() {
    start_threads(
        threads_, 32, "answering of requests", "", [this](std::size_t) { work(); }, [this] { end(); });
  }
  AnsweringThreads(const AnsweringThreads&) = delete;
  AnsweringThreads& operator=(const AnsweringThreads&) = delete;
  ~AnsweringThreads() override { shutdown(); }

  void enqueue(std::function<void()> connection) override {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(connection));
    changed_.notify_one();
  }

  void shutdown() override {
    end();
    for (auto& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  void end() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }

  // Connections that wait are answered also at the end, because only that closes them.
  void work() {
    for (;;) {
      std::function<void()> connection;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return ended_ || !waiting_.empty(); });
        if (waiting_.empty()) return;
        connection = std::move(waiting_.front());
        waiting_.pop_front();
      }
      connection();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool ended_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

struct PageServer::Parts {
  httplib::Server server;
  int port = 0;
  std::string token = random_token();
  std::mutex one_at_a_time;
  sigset_t ending = {};

  /// Whether the request may be answered with the page; else the answer says why not.
  bool allowed(const httplib::Request& request, httplib::Response& response) const {
    const auto is_own = [this](const std::string& host) {
      return host == text("127.0.0.1:", port) || host == text("localhost:", port);
    };
    if (request.method != "GET" && request.method != "HEAD") {
      response.set_header("Allow", "GET, HEAD");
      answer(response, 405, text(request.method, " is not allowed: this server is read only; use GET or HEAD"));
    } else if (request.get_header_value_count("Host") != 1 || !is_own(request.get_header_value("Host"))) {
      answer(response, 403, "the header Host names another server; use the address that tessera watch printed");
    } else if (request.has_header("Origin") && (request.get_header_value("Origin").rfind("http://", 0) != 0 ||
                                                !is_own(request.get_header_value("Origin").substr(7)))) {
      answer(response, 403, "the header Origin names another site; only pages of this server may ask it");
    } else if (!same(request.get_param_value("token"), token)) {
      answer(response, 403, "the token is missing or wrong; use the whole address that tessera watch printed");
    } else if (request.path != "/") {
      answer(response, 404, "there is only the page /");
    } else {
      return true;
    }
    return false;
  }
};

PageServer::PageServer(int port) : parts_(std::make_unique<Parts>()) {
  auto& server = parts_->server;
  // Not the library's SO_REUSEPORT, with which a second server on the same port is no error.
  server.set_socket_options([](socket_t socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  server.set_payload_max_length(1024);
  server.set_keep_alive_timeout(2);
  server.set_read_timeout(1);
  parts_->port =
      port == 0 ? server.bind_to_any_port("127.0.0.1") : (server.bind_to_port("127.0.0.1", port) ? port : -1);
  if (parts_->port <= 0)
    throw ConfigError(text("--serve ", port,
                           ": this port of 127.0.0.1 is in use, or this user may not use it; give another "
                           "port, or none for a free one"));
  // Threads inherit this: only serve() receives these signals.
  sigemptyset(&parts_->ending);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&parts_->ending, number);
  ::pthread_sigmask(SIG_BLOCK, &parts_->ending, nullptr);
}

PageServer::~PageServer() { ::pthread_sigmask(SIG_UNBLOCK, &parts_->ending, nullptr); }

std::string PageServer::address() const { return text("http://127.0.0.1:", parts_->port, "/?token=", parts_->token); }

int PageServer::serve(const std::function<std::string()>& page) {
  auto& parts = *parts_;
  parts.server.set_default_headers(
      {{"Cache-Control", "no-store"},
       {"X-Content-Type-Options", "nosniff"},
       {"Referrer-Policy", "no-referrer"},
       {"X-Frame-Options", "DENY"},
       {"Cross-Origin-Resource-Policy", "same-origin"},
       {"Content-Security-Policy",
        "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}});
  parts.server.set_pre_routing_handler([&](const httplib::Request& request, httplib::Response& response) {
    if (!parts.allowed(request, response)) return httplib::Server::HandlerResponse::Handled;
    try {
      const std::lock_guard lock(parts.one_at_a_time);
      response.set_content(page(), "text/html; charset=utf-8");
      response.status = 200;
    } catch (const std::exception& error) {
      answer(response, 500, error.what());
    }
    return httplib::Server::HandlerResponse::Handled;
  });
  auto answering = std::make_unique<AnsweringThreads>();
  parts.server.new_task_queue = [&answering] { return answering.release(); };
  std::atomic<bool> ended = false;
  std::vector<std::thread> listener;
  const auto listen = [&](std::size_t) {
    parts.server.listen_after_bind();
    ended = true;
  };
  start_threads(listener, 1, "the server", "", listen, [] {});
  // stop() does nothing before the server runs.
  while (!parts.server.is_running() && !ended) ::usleep(1000);
  int number = 0;
  while (sigwait(&parts.ending, &number) != 0) continue;
  parts.server.stop();
  listener[0].join();
  return number;
}

}  // namespace tessera::watch
