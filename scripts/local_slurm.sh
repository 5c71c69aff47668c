#!/usr/bin/env bash
# A Slurm of one machine, for trying sweeps and testing them. All that it keeps stands in a folder of its own;
# another Slurm on this machine is neither used nor touched.
#
#   scripts/local_slurm.sh start [FOLDER]      start one (in FOLDER, else in ~/.cache/zoo/slurm), and say how to use it
#   scripts/local_slurm.sh status [FOLDER]     whether it runs, and its nodes
#   scripts/local_slurm.sh stop [FOLDER]       end it and its jobs
#
#   eval "$(scripts/local_slurm.sh start)"     start it and use it in this shell
#
# It has as many CPUs as the machine, or as CPUS=n says. Preempted jobs are requeued. A start begins anew: jobs of an
# earlier one are forgotten. Debian's packages slurm-wlm and munge are installed if they are missing and this is root.
set -euo pipefail

action=${1:-help}
folder=${2:-${XDG_CACHE_HOME:-$HOME/.cache}/zoo/slurm}

say() { echo "$@" >&2; }
fail() {
    say "local_slurm: $*"
    exit 1
}

# Configuration files and sockets have trouble with spaces and long names: all is reached through a short link.
name_of_link() {
    echo "/tmp/zoo-slurm-$(id -u)-$(printf %s "$folder" | cksum | cut -d' ' -f1)"
}

# A start removes what an earlier one left, so FOLDER has to be new, empty, or one that this script has filled. The
# link stands where everybody can write: one that somebody else has put there leads who knows where.
refuse_what_is_not_ours() {
    if [ -d "$folder" ] && [ -n "$(ls -A "$folder")" ] \
        && ! grep -qs '^StateSaveLocation=/tmp/zoo-slurm-' "$folder/slurm.conf"; then
        fail "$folder holds files that are not of this script: name a new folder, or an empty one"
    fi
    if { [ -e "$link" ] || [ -L "$link" ]; } && { [ ! -L "$link" ] || [ "$(stat -c %u "$link")" != "$(id -u)" ]; }; then
        fail "$link is in the way: it is no link, or somebody else's"
    fi
}

install_packages() {
    PATH=$PATH:/usr/sbin:/sbin
    local missing=()
    command -v slurmctld > /dev/null && command -v slurmd > /dev/null && command -v sbatch > /dev/null \
        || missing+=(slurm-wlm)
    command -v munged > /dev/null || missing+=(munge)
    if [ ${#missing[@]} -eq 0 ]; then return; fi
    if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
        fail "Slurm is not installed; on Debian: apt-get install ${missing[*]}"
    fi
    say "installing ${missing[*]}"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        "${missing[@]}"; } >&2 || fail "apt-get could not install ${missing[*]}"
}

# Prints the ids of this Slurm's own processes, which their environment tells: its daemons, and what its jobs started.
own_processes() {
    {
        grep -lzxF "ZOO_LOCAL_SLURM=$link/slurm.conf" /proc/[0-9]*/environ
        grep -lzxF "SLURM_CONF=$link/slurm.conf" /proc/[0-9]*/environ | xargs -r grep -lz '^SLURM_JOB_ID='
    } 2> /dev/null | cut -d/ -f3 | sort -u || true
}

# Ends them in order, then those that did not mind.
end_processes() {
    local signal pid _
    for signal in TERM KILL; do
        for pid in $(own_processes); do
            kill -"$signal" "$pid" 2> /dev/null || true
        done
        for _ in $(seq 50); do
            [ -n "$(own_processes)" ] || return 0
            sleep 0.1
        done
    done
}

stop() {
    end_processes
    if [ "$(readlink "$link" 2> /dev/null)" = "$folder" ]; then rm -f "$link"; fi
}

free_ports() {
    python3 - "$1" << 'PYTHON' || fail "it takes python3 to find free ports"
import socket
import sys

held = [socket.socket() for _ in range(int(sys.argv[1]))]
for each in held:
    each.bind(("127.0.0.1", 0))
print(*(each.getsockname()[1] for each in held))
PYTHON
}

write_configuration() {
    local host controller daemon memory
    host=$(hostname -s 2> /dev/null || uname -n)
    read -r controller daemon <<< "$(free_ports 2)"
    memory=$(awk '/^MemTotal/ {print int($2 / 1024)}' /proc/meminfo)
    cat > "$link/slurm.conf" << EOF
ClusterName=zoo
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$controller
SlurmdPort=$daemon
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$link/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation=$link/state
SlurmdSpoolDir=$link/spool
SlurmctldPidFile=$link/slurmctld.pid
SlurmdPidFile=$link/slurmd.pid
SlurmctldLogFile=$link/slurmctld.log
SlurmdLogFile=$link/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=0,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
PreemptMode=REQUEUE
PreemptType=preempt/partition_prio
JobRequeue=1
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=30
MinJobAge=3600
MaxArraySize=10001
NodeName=$host NodeAddr=127.0.0.1 CPUs=${CPUS:-$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)} RealMemory=$memory State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=2
EOF
}

# Starts a daemon that outlives this script, and holds none of its pipes.
start_daemon() {
    setsid env SLURM_CONF="$link/slurm.conf" ZOO_LOCAL_SLURM="$link/slurm.conf" "$@" \
        < /dev/null >> "$link/start.log" 2>&1
}

start() {
    refuse_what_is_not_ours
    install_packages
    stop
    mkdir -p "$folder"
    chmod 700 "$folder"
    ln -sfnT "$folder" "$link"
    write_configuration
    rm -rf "$link"/state "$link"/spool "$link"/*.log "$link"/*.pid "$link"/munge.*
    mkdir -p "$link/state" "$link/spool"
    dd if=/dev/urandom of="$link/munge.key" bs=128 count=1 status=none
    chmod 600 "$link/munge.key"
    start_daemon munged --force --key-file="$link/munge.key" --socket="$link/munge.socket" \
        --pid-file="$link/munge.pid" --log-file="$link/munge.log" --seed-file="$link/munge.seed" \
        || fail "munged did not start: $(tail -n 3 "$link/start.log")"
    start_daemon slurmctld -c -f "$link/slurm.conf" || fail "slurmctld did not start: $(tail -n 3 "$link/start.log")"
    start_daemon slurmd -f "$link/slurm.conf" || fail "slurmd did not start: $(tail -n 3 "$link/start.log")"
    export SLURM_CONF="$link/slurm.conf"
    for _ in $(seq 150); do
        if [ "$(sinfo --noheader --partition=main --format=%t 2> /dev/null)" = idle ]; then
            say "Slurm runs; its state and its logs are in $folder"
            echo "export SLURM_CONF=$link/slurm.conf"
            return
        fi
        sleep 0.1
    done
    say "$(tail -n 5 "$link"/slurmctld.log "$link"/slurmd.log 2>&1)"
    stop
    fail "Slurm did not come up"
}

status() {
    if [ -z "$(own_processes)" ]; then
        say "no Slurm runs in $folder"
        exit 1
    fi
    export SLURM_CONF="$link/slurm.conf"
    echo "export SLURM_CONF=$SLURM_CONF"
    sinfo >&2
    squeue >&2
}

case $action in
    start | stop | status)
        mkdir -p "$(dirname "$folder")"
        folder=$(cd "$(dirname "$folder")" && pwd)/$(basename "$folder")
        if [ -d "$folder" ]; then folder=$(cd "$folder" && pwd); fi # `.` has the name that it has elsewhere
        link=$(name_of_link)
        "$action"
        ;;
    *)
        sed -n '2,/^set /p' "$0" | sed '/^set /d; s/^# \{0,1\}//'
        exit 2
        ;;
esac
