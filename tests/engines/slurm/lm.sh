#!/bin/bash
# Run lm of Holdfast on 7 hosts and 1 spare; made by `holdfast submit`.
#SBATCH --job-name=lm
#SBATCH --comment=holdfast:0123456789ab
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --partition=a100,h100
#SBATCH --time=2-00:00:00
#SBATCH --gres=gpu:8
#SBATCH --cpus-per-task=96
#SBATCH --exclusive
#SBATCH --constraint=a100&nvlink
#SBATCH --mail-user=ann@site.edu
#SBATCH --no-kill
#SBATCH --requeue
#SBATCH --signal=TERM@120
#SBATCH --output=/shared/logs/lm-%j.out
#SBATCH --open-mode=append

module load cuda && export CACHE="$TMPDIR/cache"

# A preemption leaves 30 s (KillWait).
code=0
srun --nodes=8 --ntasks-per-node=1 --cpus-per-task=96 --cpu-bind=none --no-kill --kill-on-bad-exit=0 --export=ALL \
    --output=/shared/logs/lm-%j.%t.out --open-mode=append \
    holdfast run --name lm --store /shared/runs --hosts 7 --spares 1 --ranks 8 --keep 5 --known --ends-job --grace 25 \
    -- python train.py --name 'it'"'"'s' || code=$?

# 75: it has saved, and wants to be started again; not so after `holdfast stop`.
holdfast again lm --store /shared/runs --code "$code"
code=$?
[ "$code" -eq 75 ] && scontrol requeue "$SLURM_JOB_ID"
exit "$code"
