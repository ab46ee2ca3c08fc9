#pragma once

#include <functional>
#include <memory>
#include <string>

namespace tessera::watch {

/// Serves one page on the loopback interface until SIGINT, SIGTERM or SIGHUP comes. Answers GET and HEAD of "/" only if
/// the address has the token, and if the headers Host and Origin name this server: no page of another site, also one
/// whose name was made to point to this host, can read the runs.
class PageServer {
 public:
  /// `port`: 0: one that the system chooses. Throws ConfigError if the port is in use or may not be used.
  explicit PageServer(int port);
  ~PageServer();
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;

  /// "http://127.0.0.1:PORT/?token=..."; the token has 128 random bits.
  std::string address() const;
  /// Blocks. `page` gives HTML, which may ask this server for itself again and for nothing else. It is called by one
  /// thread at a time; what it throws is the text of an answer with status 500. All other threads of the process must
  /// have been started after this object was made. Returns the signal.
  int serve(const std::function<std::string()>& page);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace tessera::watch
