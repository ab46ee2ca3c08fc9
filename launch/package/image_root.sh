#!/bin/sh
# Run as root inside a Debian 12 that becomes an image: installs the package beside this script and configures an SSH server that runs as the
# user tessera, as the Kubeflow MPI operator needs it (launch/kubernetes.yaml). Used by launch/Containerfile and launch/package.sh.
set -eu
here=$(dirname "$0")
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
apt-get -q update
apt-get -q -y --no-install-recommends install "$here"/tessera_*.deb openssh-server openssh-client
useradd --create-home --home-dir /var/lib/tessera --shell /bin/bash --uid 1000 --user-group tessera

# Without root the server cannot use port 22. Its host key is the key of the job, which the operator mounts at sshAuthMountPath; the keys that
# the installation has made would be the same in every container. The operator's files are links, which StrictModes refuses.
rm -f /etc/ssh/ssh_host_*
cat >/etc/ssh/sshd_config.d/tessera.conf <<END
Port 2222
HostKey /var/lib/tessera/.ssh/id_rsa
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
END
# The workers of a job are known by its key alone: their names and addresses change with each start.
cat >/etc/ssh/ssh_config.d/tessera.conf <<END
Port 2222
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
LogLevel ERROR
END
mkdir -p /run/sshd
apt-get -q clean
rm -rf /var/lib/apt/lists/* /var/cache/ldconfig/aux-cache /var/log/apt /var/log/*.log
rm -f "$here"/tessera_*.deb "$here/image_root.sh"
