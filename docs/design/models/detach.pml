/* Detachable requests, taken over by another gateway, as a Promela model (spin 6.5).

   One request with one visible lane whose values and length are free choices, G gateways, two orchestrators, and the shared store. The store's row
   holds the epoch, its owner and since which epoch all were that owner's, what was committed of the lane, and the terminal; every write to it is one
   compare-and-set on (epoch, not done), and an output is the client's once it is committed. Any living gateway that does not hold the request may take it over at any moment (its client came
   back there, or a sweeper found the row), also from a holder that is alive and does not know: it reads the row, and later tries to take the next epoch.
   KILLS processes are killed, CUTS links cut (gateway 0 to orchestrator 0, each side notices at its own time), ABORTS client aborts.
   detach_s may be over at any moment after its cause, unless -DKEEP: then not while a gateway is
   alive, and only a request without a living gateway is taken over.
   Frames down a link (open, abort, grant, fence) are taken as atomic; frames up are bounded FIFO channels.
   Stage work is one attempt at each owner; the workers' fences are in recovery.pml.

   The rules, each of which can be switched off:
     1. Each epoch of a detachable request, the same gateway's re-drives included, comes from the store by compare-and-set.    M_BLINDTAKE, M_LOCALEPOCH
     2. A gateway commits with its epoch, and gives to the client only what was committed.                                    M_BLINDCOMMIT
     3. A gateway confirms (by credit) only what was committed; the owner keeps outputs, and sends them again, from the last confirmed position.
                                                                                                                              M_CREDITEARLY, M_FORGETSENT
     4. At an Open of a gateway without a journal the owner keeps its own, and what works goes on, if it has the request and nobody else had
        it since: that what was committed is a prefix of it follows (a claim). Else it takes the gateway's.                    M_KEEPANY, M_SINCEEVER
     5. An owner without the journal starts only if nothing was committed.                                                     M_RESTARTANY
     6. The owner keeps a finished request until the last output is confirmed.                                                 M_FORGETDONE (with -DKEEP)
     7. A gateway that takes over opens the request at the owner that the row names, if it can.                                ANYOWNER (with -DKEEP)
     8. An owner that is opened by another gateway tells the one before, so that it does not wait for ever.                    M_REPLACEDSILENTLY

   Claims.  Client: one terminal, last; outputs in order, none doubled, skipped or contradicted; COMPLETED only after the end. Owner: what it is asked to
   send again it has; nothing starts unless RUNNING. At rest, with a gateway alive: the terminal is committed, no attempt lives, no owner runs.
   With -DKEEP and no fault but one gateway's kill, it completes.

   Checks (`python -m tools.models` runs them; with `--all` those marked `hand` too; defaults: two gateways, three epochs, one kill, one cut, one abort).
   With -DANYOWNER, which breaks rule 7, the others are stronger: whoever takes over opens the request anywhere.
     moves       | -DCUTS=0                                     | holds 73,243 |
     moves       | -DKILLS=0 -DABORTS=0                         | holds 83,059 |
     moves       | -DKILLS=0 -DCUTS=0 -DANYOWNER                | holds 128,459 |
     safety      | -DCUTS=0 -DABORTS=0 -DANYOWNER               | holds 100,345 |
     safety      | -DKILLS=0 -DABORTS=0 -DANYOWNER              | holds 258,769 |
     cycles      | -DCUTS=0 -DABORTS=0                          | holds 23,885 |
     safety      | -DCUTS=0 -DABORTS=0 -DKEEP -DGATEWAYSONLY    | holds 957 | it completes at the next gateway
     hand safety |                                              | holds 2,264,839 |
     hand safety | -DANYOWNER                                   | holds 6,855,239 |
     hand safety | -DCUTS=0 -DABORTS=0 -DANYOWNER -DG=3 -DEMAX=4 | holds 29,435,898 | 7 min, 5.5 GB
     safety      | -DM_BLINDTAKE -DABORTS=0                     | finds ost[0]== | two gateways take the same epoch: an owner is left that nobody listens to
     safety      | -DM_LOCALEPOCH -DABORTS=0                    | finds ost[0]== | a gateway counts its own epochs: the same
     safety      | -DM_BLINDCOMMIT -DABORTS=0                   | finds ==sh | a gateway that was taken over commits: doubled output
     safety      | -DM_CREDITEARLY -DABORTS=0                   | finds oc[o]<=sp | confirmed before committed: outputs are lost
     safety      | -DM_FORGETSENT -DABORTS=0                    | finds oc[o]<=sp | what was sent is not kept: outputs are lost
     safety      | -DM_KEEPANY -DABORTS=0 -DANYOWNER            | finds !(sdone)&&((goutcome | an old owner goes on with a journal of which the client has seen another one
     safety      | -DM_SINCEEVER -DABORTS=0 -DANYOWNER          | finds !(sdone)&&((goutcome | the store does not note that another owner had it: the same
     safety      | -DM_RESTARTANY -DABORTS=0                    | finds | drawn again though something was committed
     safety      | -DM_REPLACEDSILENTLY -DABORTS=0              | finds sdone | a gateway waits for ever for an owner that serves another
     safety      | -DM_FORGETDONE -DCUTS=0 -DABORTS=0 -DKEEP -DGATEWAYSONLY | finds soutcome== | what was finished is lost with the gateway that had not confirmed it
     safety      | -DANYOWNER -DCUTS=0 -DABORTS=0 -DKEEP -DGATEWAYSONLY | finds soutcome== | a new gateway does not ask the owner that has the request
*/
#ifndef N
#define N 2
#endif
#ifndef G
#define G 2
#endif
#ifndef EMAX
#define EMAX 3
#endif
#ifndef KILLS
#define KILLS 1
#endif
#ifndef CUTS
#define CUTS 1
#endif
#ifndef ABORTS
#define ABORTS 1
#endif
#ifndef W
#define W 1
#endif
#define IDLE 0
#define NONE 9

mtype = { QUEUED, RUNNING, STOPPING, ORPHANED, DONE,
          PENDING, SUBMITTED, STREAMING, FINISHED, FAILED, REFUSED, CANCELLED, LOST,
          COMPLETED, OUT, TERM };

#include "moves.h"
#define MOVE_REQUEST(o, a, b) assert(ost[o] == a); ost[o] = b; TOOK(request, a, b)
#define MOVE_ATTEMPT(o, a, b) assert(att[o] == a); att[o] = b; TOOK(attempt, a, b)

bool gdead[G], odead[2], cut, gsees[G*2], osees[G*2];        /* each side's own view of the links */
byte kills = KILLS, cuts = CUTS, aborts = ABORTS;

/* the store's row, which is also what the client has */
byte se, sp, sh; bool send, sdone; mtype soutcome; byte sowner, ssince;
/* gateways: epoch held (0: none), its owner, holds the hidden journal, the epoch read from the row, an uncommitted frame, abort wanted and sent */
byte gep[G], gown[G], gread[G], gsince[G]; bool gfull[G], gabort[G], gsent[G];
mtype gkind[G], goutcome[G]; byte gpos[G], ghist[G]; bool gend[G];
/* owners: whether it was admitted, epoch, gateway, state, verdict, attempt; outputs made, their values, end; sent; confirmed */
bool oran[2]; byte oe[2], og[2]; mtype ost[2], overdict[2], att[2];
byte on[2], oh[2], os[2], oc[2]; bool oend[2];
chan up[G*2] = [1] of { mtype, byte, byte, byte, bool, mtype };   /* kind, epoch, pos, values, end, outcome */

#define MASK(i) ((1 << (i)) - 1)
#define K(g, o) ((g)*2 + (o))
#define LINK(g, o) (gsees[K(g,o)] && osees[K(g,o)] && !gdead[g] && !odead[o] && !(cut && K(g,o) == 0))
#define ALIVE(o) (!odead[o])

/* ---------------------------------------------------------------- the store */
#ifdef M_BLINDCOMMIT
#define MAY_COMMIT(e) (!sdone)
#else
#define MAY_COMMIT(e) (se == (e) && !sdone)
#endif
#ifdef M_BLINDTAKE
#define MAY_TAKE(e) (!sdone)
#else
#define MAY_TAKE(e) (se == (e) && !sdone)
#endif
inline commit_output(p, h, e) {
  assert(!sdone && p == sp && !send && (h & MASK(p)) == sh);
  sh = h; sp++; send = e
}
inline commit_terminal(outcome) { assert(!sdone && (outcome != COMPLETED || send)); sdone = 1; soutcome = outcome }

/* ---------------------------------------------------------------- the owner */
inline end_attempt(o) {
  if :: att[o] == SUBMITTED -> MOVE_ATTEMPT(o, SUBMITTED, STOPPING); MOVE_ATTEMPT(o, STOPPING, CANCELLED)
     :: att[o] == STREAMING -> MOVE_ATTEMPT(o, STREAMING, STOPPING); MOVE_ATTEMPT(o, STOPPING, CANCELLED)
     :: else
  fi; att[o] = 0
}
inline forget(o) { oran[o] = 0; on[o] = 0; oh[o] = 0; os[o] = 0; oc[o] = 0; oend[o] = 0; overdict[o] = 0; att[o] = 0; og[o] = NONE }
inline finish(o) {
  end_attempt(o);
  if :: ost[o] == QUEUED   -> MOVE_REQUEST(o, QUEUED, DONE)
     :: ost[o] == RUNNING  -> MOVE_REQUEST(o, RUNNING, DONE)
     :: ost[o] == STOPPING -> MOVE_REQUEST(o, STOPPING, DONE)
     :: ost[o] == ORPHANED -> MOVE_REQUEST(o, ORPHANED, DONE)
  fi; forget(o)
}
#define HAS(o) (ost[o] == QUEUED || ost[o] == RUNNING || ost[o] == ORPHANED)
#ifdef M_KEEPANY
#define KEEPS(g, o) (HAS(o) && !gfull[g])
#else
#define KEEPS(g, o) (HAS(o) && !gfull[g] && gsince[g] <= oe[o])
#endif
#define BEGINS(g) (gfull[g] || sp == 0 || send)
/* What a gateway knows of the request when it is not its any more. */
inline drop(g) { gep[g] = 0; gsince[g] = 0; gown[g] = NONE; gfull[g] = 0; gsent[g] = 0; gabort[g] = 0; gkind[g] = 0; gpos[g] = 0; ghist[g] = 0; gend[g] = 0; goutcome[g] = 0 }
/* An Open of gateway g under its epoch: the positions are those that it has from the store. */
inline open(g, o) {
  if
  :: LINK(g, o) && gep[g] > oe[o] ->
#ifndef M_REPLACEDSILENTLY
     if :: og[o] != NONE && og[o] != g && LINK(og[o], o) && gown[og[o]] == o -> drop(og[o]) :: else fi;
#endif
     if
     :: KEEPS(g, o) ->
        assert(on[o] >= sp && (oh[o] & MASK(sp)) == sh && (!send || (oend[o] && on[o] == sp)));
        assert(oc[o] <= sp); os[o] = sp; oc[o] = sp;
        if :: ost[o] == ORPHANED && oran[o]  -> MOVE_REQUEST(o, ORPHANED, RUNNING)
           :: ost[o] == ORPHANED && !oran[o] -> MOVE_REQUEST(o, ORPHANED, QUEUED)
           :: else
        fi
     :: !KEEPS(g, o) -> end_attempt(o); on[o] = sp; oh[o] = sh; oend[o] = send; os[o] = sp; oc[o] = sp; overdict[o] = 0; ost[o] = QUEUED; oran[o] = 0;
#ifdef M_RESTARTANY
        if :: !BEGINS(g) -> on[o] = 0; oh[o] = 0 :: else fi      /* drawn again from the start, and sent from the position */
#else
        if :: !BEGINS(g) -> MOVE_REQUEST(o, QUEUED, STOPPING); overdict[o] = FAILED :: else fi
#endif
     fi;
     oe[o] = gep[g]; og[o] = g
  :: LINK(g, o) && gep[g] <= oe[o] -> drop(g)                 /* answered with Fenced: the gateway is not the request's any more */
  :: else
  fi
}

/* ---------------------------------------------------------------- the gateway */
inline fence(g, o) {
  if :: LINK(g, o) && se > oe[o] && og[o] == g && ost[o] != IDLE && ost[o] != DONE -> finish(o) :: else fi
}
inline confirm(g, p) {
  if :: gown[g] != NONE && LINK(g, gown[g]) && og[gown[g]] == g && oe[gown[g]] == gep[g] && ost[gown[g]] != DONE ->
        if :: p > oc[gown[g]] -> oc[gown[g]] = p :: else fi
     :: else
  fi
}

#if G > 2
#define HELD ((!gdead[0] && gep[0] == se) || (!gdead[1] && gep[1] == se) || (!gdead[2] && gep[2] == se))
#define GATEWAYS_ALIVE (!gdead[0] || !gdead[1] || !gdead[2])
#else
#define HELD ((!gdead[0] && gep[0] == se) || (!gdead[1] && gep[1] == se))
#define GATEWAYS_ALIVE (!gdead[0] || !gdead[1])
#endif

/* Where to open: at the row's owner, whatever else is there. */
#ifdef ANYOWNER
#define CHOOSE(g) if :: gsees[K(g,0)] -> o = 0 :: gsees[K(g,1)] -> o = 1 fi
#else
#define CHOOSE(g) if :: gsees[K(g,sowner)] -> o = sowner :: !gsees[K(g,sowner)] -> o = 1 - sowner fi
#endif
/* The row names the owner of the epoch that was taken, and since when it is the only one. */
inline name_owner(g) {
#ifdef M_SINCEEVER
  ssince = 1;
#else
  if :: o != sowner -> ssince = se :: else fi;
#endif
  gown[g] = o; sowner = o; gsince[g] = ssince
}
#ifdef KEEP
#define WANTED(g) (!HELD)
#else
#define WANTED(g) true
#endif

proctype Gateway(byte g) {
  byte o, e;
  do
  /* the request comes in */
  :: atomic { g == 0 && se == 0 && !gdead[g] -> se = 1; ssince = 1; gep[g] = 1; gfull[g] = 1; gown[g] = 0; open(g, 0) }
  /* another gateway reads the row, and takes the next epoch if nobody else did */
  :: atomic { !gdead[g] && gep[g] == 0 && se > 0 && se < EMAX && !sdone && gread[g] != se && WANTED(g) -> gread[g] = se }
  :: atomic { !gdead[g] && gep[g] == 0 && gread[g] > 0 && se > 0 && (gsees[K(g,0)] || gsees[K(g,1)]) ->
       if
       :: MAY_TAKE(gread[g]) ->
          gep[g] = gread[g] + 1; se = gep[g]; gown[g] = NONE; gfull[g] = 0;
          CHOOSE(g); name_owner(g); open(g, o)
       :: else
       fi; gread[g] = 0; o = 0 }
  /* its owner is lost: it opens the request elsewhere, under another epoch of the store */
  :: atomic { !gdead[g] && gep[g] > 0 && gown[g] == NONE && !gabort[g] && (gsees[K(g,0)] || gsees[K(g,1)]) && gep[g] < EMAX ->
#ifdef M_LOCALEPOCH
       gep[g]++; if :: gep[g] > se -> se = gep[g] :: else fi;
       CHOOSE(g); name_owner(g); open(g, o); o = 0
#else
       if :: MAY_TAKE(gep[g]) ->
             gep[g]++; se = gep[g];
             CHOOSE(g); name_owner(g); open(g, o); o = 0
          :: else -> drop(g)
       fi
#endif
     }
  /* nowhere to go, or aborted without an owner */
  :: atomic { !gdead[g] && gep[g] > 0 && gown[g] == NONE && (gabort[g] || gep[g] == EMAX || (!gsees[K(g,0)] && !gsees[K(g,1)])) ->
       if :: MAY_COMMIT(gep[g]) && gabort[g] -> commit_terminal(CANCELLED)
          :: MAY_COMMIT(gep[g]) && !gabort[g] -> commit_terminal(FAILED)
          :: else
       fi; drop(g) }
  /* epochs are spent and nobody holds it: a sweeper ends it */
  :: atomic { !gdead[g] && gep[g] == 0 && !sdone && ((se == EMAX && !HELD) || (se > 0 && !gsees[K(g,0)] && !gsees[K(g,1)] && !HELD)) -> commit_terminal(FAILED) }
  /* abort */
  :: atomic { !gdead[g] && gep[g] > 0 && !gabort[g] && aborts > 0 -> aborts--; gabort[g] = 1 }
  :: atomic { !gdead[g] && gep[g] > 0 && gabort[g] && !gsent[g] && gown[g] != NONE ->
       gsent[g] = 1; o = gown[g];
       if :: LINK(g, o) && oe[o] == gep[g] && og[o] == g && ost[o] == RUNNING -> MOVE_REQUEST(o, RUNNING, STOPPING); overdict[o] = CANCELLED
          :: LINK(g, o) && oe[o] == gep[g] && og[o] == g && ost[o] == QUEUED -> MOVE_REQUEST(o, QUEUED, STOPPING); overdict[o] = CANCELLED
          :: else
       fi; o = 0 }
  /* a frame comes in */
  :: atomic { !gdead[g] && gkind[g] == 0 && gsees[K(g,0)] && !(cut && K(g,0) == 0) && len(up[K(g,0)]) > 0 -> o = 0; goto rcv }
  :: atomic { !gdead[g] && gkind[g] == 0 && gsees[K(g,1)] && len(up[K(g,1)]) > 0 -> o = 1;
rcv:   up[K(g,o)]?gkind[g], e, gpos[g], ghist[g], gend[g], goutcome[g];
       if :: e == gep[g] && gown[g] == o ->
#ifdef M_CREDITEARLY
             if :: gkind[g] == OUT -> confirm(g, gpos[g] + 1) :: else fi
#else
             skip
#endif
          :: else -> gkind[g] = 0; gpos[g] = 0; ghist[g] = 0; gend[g] = 0; goutcome[g] = 0; fence(g, o)
       fi; e = 0; o = 0 }
  /* and is committed, then given to the client and confirmed */
  :: atomic { !gdead[g] && gkind[g] == OUT ->
       if :: MAY_COMMIT(gep[g]) -> commit_output(gpos[g], ghist[g], gend[g]); confirm(g, gpos[g] + 1); gkind[g] = 0; gpos[g] = 0; ghist[g] = 0; gend[g] = 0
          :: else -> if :: gown[g] != NONE -> fence(g, gown[g]) :: else fi; drop(g)
       fi }
  :: atomic { !gdead[g] && gkind[g] == TERM ->
       if :: MAY_COMMIT(gep[g]) -> commit_terminal(goutcome[g]) :: else fi; drop(g) }
  /* links */
  :: atomic { !gdead[g] && gsees[K(g,0)] && gown[g] == 0 && (odead[0] || (cut && g == 0) || !osees[K(g,0)]) -> o = 0; goto lost }
  :: atomic { !gdead[g] && gsees[K(g,1)] && gown[g] == 1 && (odead[1] || !osees[K(g,1)]) -> o = 1;
lost:  gsees[K(g,o)] = 0;
       do :: len(up[K(g,o)]) > 0 -> up[K(g,o)]?_,_,_,_,_,_ :: else -> break od;
       gown[g] = NONE; gsent[g] = 0; gkind[g] = 0; gpos[g] = 0; ghist[g] = 0; gend[g] = 0; goutcome[g] = 0; o = 0 }
  od
}
#ifdef M_FORGETDONE
#define CONFIRMED(o) (os[o] == on[o])
#else
#define CONFIRMED(o) (oc[o] == on[o])
#endif
#ifdef KEEP
#define OVER (!GATEWAYS_ALIVE)
#else
#define OVER true
#endif

proctype Owner(byte o) {
  bit b; bool x;
  do
  :: atomic { !odead[o] && ost[o] == QUEUED -> MOVE_REQUEST(o, QUEUED, RUNNING); oran[o] = 1 }
  :: atomic { !odead[o] && ost[o] == RUNNING && att[o] == 0 && !oend[o] -> att[o] = PENDING; MOVE_ATTEMPT(o, PENDING, SUBMITTED) }
  /* an output: what is not confirmed is bounded by the window, also while nobody is there to confirm */
  :: atomic { !odead[o] && (ost[o] == RUNNING || ost[o] == ORPHANED) && (att[o] == SUBMITTED || att[o] == STREAMING) && on[o] - oc[o] < W + 1 ->
       if :: b = 0 :: b = 1 fi; if :: x = 1 :: on[o] < N - 1 -> x = 0 fi;
       if :: att[o] == SUBMITTED -> MOVE_ATTEMPT(o, SUBMITTED, STREAMING) :: else fi;
       oh[o] = oh[o] | (b << on[o]); on[o]++; oend[o] = x;
       if :: x -> MOVE_ATTEMPT(o, STREAMING, FINISHED); att[o] = 0 :: else fi; b = 0; x = 0 }
  :: atomic { !odead[o] && ost[o] == RUNNING && os[o] < on[o] && og[o] != NONE && osees[K(og[o],o)] && len(up[K(og[o],o)]) < 1 ->
       up[K(og[o],o)]!OUT, oe[o], os[o], oh[o] & MASK(os[o] + 1), (oend[o] && os[o] == on[o] - 1), 0; os[o]++;
#ifdef M_FORGETSENT
       oc[o] = os[o];
#endif
     }
  :: atomic { !odead[o] && ost[o] == RUNNING && oend[o] && os[o] == on[o] && CONFIRMED(o) && osees[K(og[o],o)] && len(up[K(og[o],o)]) < 1 ->
       up[K(og[o],o)]!TERM, oe[o], 0, 0, 0, COMPLETED; finish(o) }
  :: atomic { !odead[o] && ost[o] == STOPPING && osees[K(og[o],o)] && len(up[K(og[o],o)]) < 1 ->
       up[K(og[o],o)]!TERM, oe[o], 0, 0, 0, overdict[o]; finish(o) }
  /* the gateway's link is lost */
  :: atomic { !odead[o] && og[o] != NONE && osees[K(og[o],o)] && (gdead[og[o]] || (cut && K(og[o],o) == 0) || !gsees[K(og[o],o)]) ->
       osees[K(og[o],o)] = 0;
       if :: ost[o] == QUEUED  -> MOVE_REQUEST(o, QUEUED, ORPHANED); og[o] = NONE
          :: ost[o] == RUNNING -> MOVE_REQUEST(o, RUNNING, ORPHANED); og[o] = NONE
          :: ost[o] == STOPPING -> finish(o)
          :: else -> og[o] = NONE
       fi }
  /* detach_s is over */
  :: atomic { !odead[o] && ost[o] == ORPHANED && (OVER || sdone) -> finish(o) }
  od
}

proctype Env() {
  do
  :: atomic { kills > 0 && se > 0 && !sdone && !gdead[0] -> kills--; gdead[0] = 1; drop(0) }
#if G > 2
  :: atomic { kills > 0 && se > 1 && !sdone && !gdead[1] -> kills--; gdead[1] = 1; drop(1) }
#endif
#ifndef GATEWAYSONLY
  :: atomic { kills > 0 && se > 0 && !sdone && !odead[0] -> kills--; odead[0] = 1; ost[0] = DONE; forget(0) }
  :: atomic { kills > 0 && se > 1 && !sdone && !odead[1] -> kills--; odead[1] = 1; ost[1] = DONE; forget(1) }
#endif
  :: atomic { cuts > 0 && se > 0 && !sdone -> cuts--; cut = 1 }
  od
}

/* At rest. */
proctype Monitor() {
  timeout ->
    assert(sdone);
    assert(att[0] == 0 && att[1] == 0);
    assert((ost[0] == IDLE || ost[0] == DONE) && (ost[1] == IDLE || ost[1] == DONE));
#if defined(KEEP) && CUTS == 0 && ABORTS == 0
    assert(soutcome == COMPLETED)
#endif
}

init { atomic {
  byte i; for (i : 0 .. G*2-1) { gsees[i] = 1; osees[i] = 1 }
  for (i : 0 .. G-1) { gown[i] = NONE; run Gateway(i) }
  i = 0; og[0] = NONE; og[1] = NONE;
  run Owner(0); run Owner(1); run Env(); run Monitor()
} }
