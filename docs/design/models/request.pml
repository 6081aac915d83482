/* One request at its owner, and every move of its attempts, as a Promela model (spin 6.5).

   An upstream stage that runs as a group of two (a parent and its companion: attempts 0 and 1, one engine slot each, on one replica), and a
   downstream stage with the visible lane (attempt 2) on another replica. The core is that of services/orchestrator/core: its states and moves
   are those of moves.py, and `python -m tools.models` runs the checks. Lanes have one to N outputs, free choices of the worker.
   At most FAULTS of these, in any order and at any moment: a refusal, an engine failure, a worker that gives up, forgets, sends a wrong position or
   hangs, a lost link. The client may abort, drain or vanish once (STOPS); the deadline and all timers fire at any time after their cause.
   Frames down a link are taken as atomic: a late frame is the same as a late step of its sender. Frames up a link are a bounded FIFO channel.
   With -DREDRIVE a lost group wants a replica again, as where a contract allows that; without, the request fails, as where none does.
   A request that becomes an orphan, or is opened again, is in recovery.pml.

   Claims.  Client: one terminal, last, unless it vanished; positions in order; COMPLETED only after the end.  Attempts: moved by the table
   only; aborted once at most; every one that was submitted has ended once when the request is DONE.  Nothing is submitted or fed unless the
   request is RUNNING.  Workers: never given work that they have no engine slot for.  At rest: DONE, and the owner holds as engine slots exactly
   what workers hold.  ended: <> DONE.  attempts_end: always,
   a running attempt ends. completed: without a fault, a stop or a deadline, it completes. All under weak fairness.

   Checks (`python -m tools.models` runs them; with `--all` those marked `hand` too; defaults: two faults, one stop, N = 2):
     moves         |                                            | holds 626,307 | a lost group fails the request
     moves         | -DREDRIVE -DFAULTS=1                       | holds 211,411 | a lost group is re-driven
     hand safety   | -DREDRIVE                                  | holds 1,312,837 |
     hand safety   | -DN=3                                      | holds 9,003,706 |
     live ended    | -DFAULTS=1                                 | holds 134,252 |
     live attempts_end | -DFAULTS=1                             | holds 178,839 |
     live completed | -DM_NODEADLINE -DSTOPS=0 -DFAULTS=0       | holds 715 | nothing happens: it completes
     hand live ended |                                          | holds 576,045 |
     hand live attempts_end | -DREDRIVE                         | holds 1,601,375 |
     live completed | -DM_NODEADLINE -DSTOPS=0 -DFAULTS=1       | finds acceptancecycle | something happens: it need not
     live ended    | -DM_NODEADLINE -DSTOPS=0 -DFAULTS=1        | finds request== | no deadline: a worker that hangs holds the request for ever
     safety        | -DM_NOUSAGEWAIT -DM_NODEADLINE -DSTOPS=0   | finds request== | no usage_wait_s: neither does it complete
     safety        | -DM_NOACKTIMER                             | finds request== | no abort_ack_s: nor does it stop
     safety        | -DM_ABORTTWICE                             | finds !(told[ | an attempt is told to stop again
     safety        | -DM_KEEPPENDING                            | finds attempt[0]!= | what waits for a replica outlives the request
     safety        | -DM_LATESTART                              | finds attempt[0]!= | and is started while it stops
     safety        | -DM_FREESLOT                               | finds leftover[0]==has[0] | an engine slot counts as free before the worker says so
     safety        | -DM_PENDEARLY                              | finds ends[ | a refused group goes on before all of it has let go
     safety        | -DM_LATEROW                                | finds terminals==0 | a late output is passed on
     safety        | -DM_TWOENDS                                | finds terminals==0 | who stops a request ends it too
*/
#ifndef N
#define N 2
#endif
#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef STOPS
#define STOPS 1
#endif
#define ROUNDS 3          /* submissions of a group at most: one more than FAULTS can end */

mtype = { QUEUED, RUNNING, STOPPING, DONE,
          PENDING, SUBMITTED, STREAMING, FINISHED, FAILED, REFUSED, CANCELLED, LOST,
          COMPLETED, REJECTED, ROW, TERM, UNKNOWN };

#include "moves.h"

mtype request = QUEUED, attempt[3], verdict;
byte round[2], next[3], fed, faults = FAULTS, stops = STOPS;
bool ended[3], leftover[3], gone;
byte submitted[3], ends[3];                                   /* for the claim that every attempt ends once */
/* workers: a job, the round that it belongs to, outputs made, told to stop, hung */
bool has[3], told[3], hung[3], begun[3]; byte job[3], made[3];
chan up[2] = [2] of { mtype, byte, byte, byte, bool };       /* kind or outcome, attempt, round, position, last */
/* the client */
byte seen, terminals; bool closed;

#define POOL(i)     ((i) / 2)                                 /* 0: the group of two, 1: downstream */
#define RUNS(i)     (attempt[i] == SUBMITTED || attempt[i] == STREAMING)
#define LIVES(i)    (RUNS(i) || attempt[i] == STOPPING)
#define LIVE_ANY    (LIVES(0) || LIVES(1) || LIVES(2))
#ifdef M_PENDEARLY
#define LET_GO true
#else
#define LET_GO (!LIVES(0) && !LIVES(1))
#endif
#ifdef M_LATESTART
#define MAY_START (request == RUNNING || request == STOPPING)
#else
#define MAY_START (request == RUNNING)
#endif
/* Something came of its group: it cannot begin elsewhere unless it can be re-driven. */
#ifdef REDRIVE
#define REFUSABLE(i) (attempt[i] == SUBMITTED)
#else
#define REFUSABLE(i) (attempt[i] == SUBMITTED && (i == 2 -> next[2] == 0 : next[0] + next[1] == 0))
#endif
#define MOVE_REQUEST(a, b)    assert(request == a); request = b; TOOK(request, a, b)
#define MOVE_ATTEMPT(i, a, b) assert(attempt[i] == a); attempt[i] = b; TOOK(attempt, a, b)

/* ---------------------------------------------------------------- the worker's side of frames down */
inline worker_submit(i, r) {
  assert(!has[i]);                                            /* its engine slot is free */
  assert(request == RUNNING);                                 /* ORCH-INV-100 */
  has[i] = 1; job[i] = r; made[i] = next[i]; begun[i] = 0; told[i] = 0; hung[i] = 0
}
inline worker_abort(i, r) {
  if :: has[i] && job[i] == r -> assert(!told[i]); told[i] = 1
     :: else
  fi
}
inline free_job(i) { has[i] = 0; told[i] = 0; begun[i] = 0; hung[i] = 0; made[i] = 0; job[i] = 0 }

/* ---------------------------------------------------------------- the owner */
inline client_terminal(outcome) {
  if :: !gone -> assert(terminals == 0); assert(outcome != COMPLETED || closed); terminals++
     :: else
  fi
}
inline let_go(i) { ends[i]++; assert(ends[i] == submitted[i]) }
inline abort_one(i) {
  if :: attempt[i] == SUBMITTED -> MOVE_ATTEMPT(i, SUBMITTED, STOPPING); worker_abort(i, round[POOL(i)])
     :: attempt[i] == STREAMING -> MOVE_ATTEMPT(i, STREAMING, STOPPING); worker_abort(i, round[POOL(i)])
#ifdef M_ABORTTWICE
     :: attempt[i] == STOPPING -> worker_abort(i, round[POOL(i)])
#endif
     :: else
  fi
}
inline drop_one(i) {
  if :: attempt[i] == PENDING ->
#if defined(M_KEEPPENDING) || defined(M_LATESTART)
        skip
#else
        MOVE_ATTEMPT(i, PENDING, CANCELLED)
#endif
     :: else -> abort_one(i)
  fi
}
inline cut_off(i) {
  if :: attempt[i] == STOPPING ->
        MOVE_ATTEMPT(i, STOPPING, CANCELLED); let_go(i);
#ifndef M_FREESLOT
        leftover[i] = 1
#endif
     :: else
  fi
}
inline finish(outcome) {                                      /* the request has moved to DONE */
  cut_off(0); cut_off(1); cut_off(2);
  assert(ends[0] == submitted[0] && ends[1] == submitted[1] && ends[2] == submitted[2]);
  client_terminal(outcome)
}
inline stop_attempts(outcome) {                               /* the request has moved to STOPPING */
  verdict = outcome;
  drop_one(0); drop_one(1); drop_one(2);
  if :: !LIVE_ANY -> MOVE_REQUEST(STOPPING, DONE); finish(verdict)
     :: else
  fi
}
inline stop(outcome) {
  if :: request == QUEUED  -> MOVE_REQUEST(QUEUED, STOPPING); stop_attempts(outcome)
     :: request == RUNNING -> MOVE_REQUEST(RUNNING, STOPPING); stop_attempts(outcome)
     :: else
  fi
}
inline pend_one(i) { attempt[i] = PENDING }                   /* a new attempt */
inline pend_again(i) {                                        /* a refused group, once all of it has let go */
  if :: request == RUNNING && i < 2 && (attempt[0] == REFUSED || attempt[1] == REFUSED) && LET_GO -> pend_one(0); pend_one(1)
     :: request == RUNNING && i == 2 && attempt[2] == REFUSED -> pend_one(2)
     :: else
  fi
}
inline refused(i) {
  MOVE_ATTEMPT(i, SUBMITTED, REFUSED); let_go(i);
  if :: i < 2 -> abort_one(0); abort_one(1) :: else fi;
  pend_again(i)
}
inline stopped(i) { MOVE_ATTEMPT(i, STOPPING, CANCELLED); let_go(i); pend_again(i) }
inline failed(i, outcome) {
  if :: attempt[i] == SUBMITTED && outcome == CANCELLED -> MOVE_ATTEMPT(i, SUBMITTED, CANCELLED)
     :: attempt[i] == SUBMITTED && outcome != CANCELLED -> MOVE_ATTEMPT(i, SUBMITTED, FAILED)
     :: attempt[i] == STREAMING && outcome == CANCELLED -> MOVE_ATTEMPT(i, STREAMING, CANCELLED)
     :: else -> MOVE_ATTEMPT(i, STREAMING, FAILED)
  fi;
  let_go(i); stop(FAILED)
}
inline lost(i) {
  if :: attempt[i] == SUBMITTED -> MOVE_ATTEMPT(i, SUBMITTED, LOST); let_go(i)
     :: attempt[i] == STREAMING -> MOVE_ATTEMPT(i, STREAMING, LOST); let_go(i)
     :: attempt[i] == STOPPING -> stopped(i)
     :: else
  fi
}
/* Goes on after the loss of a group. */
inline recover(p) {
  if :: request == RUNNING && (attempt[2*p] == LOST || (p == 0 && attempt[1] == LOST)) ->
#ifdef REDRIVE
        /* All unfinished roles again, in one Submit; what is delivered is not sent again. */
        if :: p == 0 -> abort_one(0); abort_one(1) :: else fi;
        if :: p == 1 -> pend_one(2)
           :: p == 0 && !LIVES(0) && !LIVES(1) ->
              if :: attempt[0] != FINISHED -> pend_one(0) :: else fi;
              if :: attempt[1] != FINISHED -> pend_one(1) :: else fi
           :: else
        fi
#else
        stop(FAILED)
#endif
     :: else
  fi
}
inline break_off(i) { worker_abort(i, round[POOL(i)]); leftover[i] = 1; failed(i, FAILED) }

inline take_row(i, r, pos, last) {
  if
  :: r == round[POOL(i)] && RUNS(i) ->
     if :: attempt[i] == SUBMITTED -> MOVE_ATTEMPT(i, SUBMITTED, STREAMING) :: else fi;
     if
     :: pos == next[i] ->
        next[i]++; ended[i] = last;
        if :: i == 2 && !gone -> assert(terminals == 0 && !closed && pos == seen); seen++; closed = last :: else fi;
        if :: last -> MOVE_ATTEMPT(i, STREAMING, FINISHED); let_go(i) :: else fi
     :: else -> break_off(i)
     fi
  :: r == round[POOL(i)] && attempt[i] == STOPPING ->
#ifdef M_LATEROW
     if :: i == 2 && !gone -> assert(terminals == 0 && !closed && pos == seen); seen++; closed = last :: else fi;
#endif
     if :: last -> stopped(i) :: else fi
  :: else ->
#ifdef M_LATEROW
     if :: i == 2 && !gone -> assert(terminals == 0 && !closed && pos == seen); seen++; closed = last :: else fi;
#endif
     if :: last && r == round[POOL(i)] -> leftover[i] = 0 :: else fi
  fi
}
inline take_terminal(i, r, outcome) {
  if
  :: r == round[POOL(i)] && attempt[i] == STOPPING -> stopped(i)
  :: r == round[POOL(i)] && RUNS(i) ->
     if :: outcome == REJECTED && REFUSABLE(i) -> refused(i)
        :: outcome == UNKNOWN -> lost(i); recover(POOL(i))
        :: else -> failed(i, outcome)
     fi
  :: else -> if :: r == round[POOL(i)] -> leftover[i] = 0 :: else fi
  fi
}

/* Upstream is needed until downstream has all that it wants of it: here until its own end. */
#define NEEDED0 (!ended[2])

active proctype Owner() {
  mtype kind; byte i, r, pos; bool last;
end:
  do
  :: atomic { request == QUEUED -> MOVE_REQUEST(QUEUED, RUNNING) }
  :: atomic { request == RUNNING && attempt[0] == 0 -> pend_one(0); pend_one(1) }
  :: atomic { request == RUNNING && attempt[2] == 0 && (next[0] > 0 || ended[0]) && (next[1] > 0 || ended[1]) && !ended[2] -> pend_one(2) }
  :: atomic { MAY_START && (attempt[0] == PENDING || attempt[1] == PENDING) && LET_GO && round[0] < ROUNDS ->
       round[0]++;
       if :: attempt[0] == PENDING -> MOVE_ATTEMPT(0, PENDING, SUBMITTED); submitted[0]++; worker_submit(0, round[0]) :: else fi;
       if :: attempt[1] == PENDING -> MOVE_ATTEMPT(1, PENDING, SUBMITTED); submitted[1]++; worker_submit(1, round[0]) :: else fi }
  :: atomic { MAY_START && attempt[2] == PENDING && round[1] < ROUNDS ->
       round[1]++; MOVE_ATTEMPT(2, PENDING, SUBMITTED); submitted[2]++; worker_submit(2, round[1]); fed = 0 }
  /* a stream edge; what downstream was sent is of one attempt */
  :: atomic { request == RUNNING && RUNS(2) && fed < next[0] -> assert(terminals == 0); fed++ }
  /* nobody needs upstream any more */
  :: atomic { request == RUNNING && !NEEDED0 && (attempt[0] == PENDING || attempt[1] == PENDING || RUNS(0) || RUNS(1)) -> drop_one(0); drop_one(1) }
  /* everything is given, and every attempt has let go, or usage_wait_s is over */
  :: atomic { request == RUNNING && ended[2] && attempt[2] == FINISHED && !LIVES(0) && !LIVES(1) && attempt[0] != PENDING && attempt[1] != PENDING ->
       MOVE_REQUEST(RUNNING, DONE); finish(COMPLETED) }
#ifndef M_NOUSAGEWAIT
  :: atomic { request == RUNNING && ended[2] && attempt[2] == FINISHED && (LIVES(0) || LIVES(1)) && !RUNS(0) && !RUNS(1) ->
       MOVE_REQUEST(RUNNING, DONE); finish(COMPLETED) }
#endif
  /* abort_ack_s is over, or every attempt has let go */
  :: atomic { request == STOPPING && !LIVE_ANY -> MOVE_REQUEST(STOPPING, DONE); finish(verdict) }
#ifndef M_NOACKTIMER
  :: atomic { request == STOPPING && LIVE_ANY -> MOVE_REQUEST(STOPPING, DONE); finish(verdict) }
#endif
  :: atomic { stops > 0 && terminals == 0 && !gone -> stops--; i = 0;
       if :: stop(CANCELLED)                                  /* abort, drain */
          :: gone = 1; stop(CANCELLED)                        /* the client vanished */
       fi;
#ifdef M_TWOENDS
       if :: request == DONE -> client_terminal(CANCELLED) :: else fi;
#endif
       }
#ifndef M_NODEADLINE
  :: atomic { request == QUEUED || request == RUNNING -> stop(FAILED) }
#endif
  :: atomic { up[0]?kind, i, r, pos, last -> goto took }
  :: atomic { up[1]?kind, i, r, pos, last ->
took:  if :: kind == ROW -> take_row(i, r, pos, last)
          :: else -> take_terminal(i, r, kind)
       fi;
       kind = 0; i = 0; r = 0; pos = 0; last = 0 }
  /* a link is lost: all on it is over, in flight or not */
  :: atomic { faults > 0 && (has[0] || has[1] || LIVES(0) || LIVES(1)) -> faults--;
       do :: len(up[0]) > 0 -> up[0]?_,_,_,_,_ :: else -> break od;
       free_job(0); free_job(1); leftover[0] = 0; leftover[1] = 0; lost(0); lost(1); recover(0) }
  :: atomic { faults > 0 && (has[2] || LIVES(2)) -> faults--;
       do :: len(up[1]) > 0 -> up[1]?_,_,_,_,_ :: else -> break od;
       free_job(2); leftover[2] = 0; lost(2); recover(1) }
#ifdef REDRIVE
  /* the companions of a lost attempt have let go */
  :: atomic { request == RUNNING && NEEDED0 && (attempt[0] == LOST || attempt[1] == LOST) && !LIVES(0) && !LIVES(1) ->
       if :: attempt[0] != FINISHED -> pend_one(0) :: else fi;
       if :: attempt[1] != FINISHED -> pend_one(1) :: else fi }
#endif
  od
}

#define CAN(i) (has[i] && !hung[i] && len(up[POOL(i)]) < 2)

proctype Worker(byte i) {
  bool last;
end:
  do
  /* from the cursor that the Submit named */
  :: atomic { CAN(i) && made[i] < N ->
       begun[i] = 1;
       if :: last = 1 :: made[i] < N - 1 -> last = 0 fi;
       up[POOL(i)]!ROW, i, job[i], made[i], last; made[i]++;
       if :: last -> free_job(i) :: else fi; last = 0 }
  :: atomic { CAN(i) && told[i] -> up[POOL(i)]!CANCELLED, i, job[i], 0, 0; free_job(i) }
  :: atomic { CAN(i) && faults > 0 -> faults--;
       if :: !begun[i] -> up[POOL(i)]!REJECTED, i, job[i], 0, 0; free_job(i)
          :: up[POOL(i)]!FAILED, i, job[i], 0, 0; free_job(i)
          :: up[POOL(i)]!CANCELLED, i, job[i], 0, 0; free_job(i)
          :: up[POOL(i)]!UNKNOWN, i, job[i], 0, 0; free_job(i)
          :: up[POOL(i)]!ROW, i, job[i], N + 1, 0
          :: hung[i] = 1
       fi }
  od
}

/* At rest. */
active proctype Monitor() {
  timeout ->
    assert(request == DONE && terminals == (gone -> 0 : 1));
    assert(leftover[0] == has[0] && leftover[1] == has[1] && leftover[2] == has[2]);
    assert((!has[0] || hung[0]) && (!has[1] || hung[1]) && (!has[2] || hung[2]));
    assert(!LIVE_ANY && attempt[0] != PENDING && attempt[1] != PENDING && attempt[2] != PENDING)
}
init { atomic { run Worker(0); run Worker(1); run Worker(2) } }
#ifdef LIVE
ltl completed { <> (request == DONE && closed && !verdict) }
ltl ended { <> (request == DONE) }
ltl attempts_end { [] (RUNS(0) -> <> !RUNS(0)) && [] (RUNS(1) -> <> !RUNS(1)) && [] (RUNS(2) -> <> !RUNS(2)) }
#endif
