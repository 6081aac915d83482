/* Recovery protocol: the core, as a Promela model (spin 6.5).

   One request; an upstream stage U (TOKENS: its values and its length are free choices, so a re-drive that draws again is seen) with a
   hidden lane, a stream edge to a downstream stage D (REPLAY: output i is a function of inputs 0..i) with the visible lane; two workers
   per stage; two orchestrators that may both believe they own the request; one gateway and its client. Faults at any moment: KILLS
   processes killed (what they had in flight is lost from any point on), CUTS links cut (gateway-O0, O0-W0, O0-W2), HEALS heals of the first
   with reconnection, ABORTS client aborts, DRAINS workers' and ODRAINS orchestrators' hand-backs. Link loss is noticed by each side at its own
   time; timers fire at any time after their cause.
   Frames down a link (open, submit, input, abort, fence) are taken as atomic: a late frame is the same as a late step of its sender.
   Frames up a link are bounded FIFO channels.
   States and moves are those of services/orchestrator/core/moves.py (a test compares them); an attempt's end states are passed through, not kept. An `Open` with a higher
   epoch makes a new record, whatever the old one was. How one attempt ends, step by step, is in request.pml; credit and slots are in credit.pml;
   requests that outlive their gateway are in detach.pml.

   Claims.  Client: one terminal; outputs in order, none doubled, none after the end or the terminal, output i extends output i-1 (no
   contradiction), COMPLETED only after the end.  Owner: starts nothing unless RUNNING.  Worker: starts nothing for an epoch below its fence,
   nor after a terminal sent by an owner of this or a later epoch.  At rest (Monitor): the terminal was seen, no attempt lives, no owner runs.
   live: <> terminal, under weak fairness.

   Limits of the fault set: only O0's links are cut; the second worker of a stage is killed only once a second epoch exists (in epoch 1 the
   first one is always chosen first); at most one of each fault. Rows of kind `hash` and `hashcycles` are hash-compacted, the others exact.
   Not run: liveness with kill and cut together under fairness (the row `hashcycles` covers it); N = 3 with a cut.

   Checks (`python -m tools.models` runs them; with `--all` those marked `hand` too; defaults: one kill, one cut, one abort, one heal, N = 2):
     safety      | -DKILLS=0 -DCUTS=0 -DABORTS=0 -DHEALS=0                | holds 299 | no fault
     moves       | -DCUTS=0 -DHEALS=0 -DDRAINS=1                          | holds 534,935 | kill, abort, hand-back
     moves       | -DKILLS=0 -DCUTS=0 -DHEALS=0 -DODRAINS=1               | holds 40,221 | abort, an owner's hand-back
     moves       | -DKILLS=0 -DABORTS=0 -DHEALS=0                         | holds 431,735 | cut
     hand safety | -DKILLS=0 -DHEALS=0                                    | holds 1,694,989 | cut, abort
     hand safety | -DN=3 -DCUTS=0 -DHEALS=0                               | holds 1,674,137 | kill, abort
     safety      | -DADOPT -DCUTS=0 -DHEALS=0                             | holds 743,715 | adoption: kill, abort
     live live   | -DCUTS=0 -DHEALS=0                                     | holds 119,712 | kill, abort
     cycles      | -DCUTS=0 -DHEALS=0                                     | holds 262,405 | kill, abort
     hand safety | -DKILLS=0                                              | holds 3,993,479 | cut, abort, heal
     hand safety | -DCUTS=0 -DHEALS=0 -DODRAINS=1                         | holds 5,454,369 | kill, abort, an owner's hand-back
     hand safety | -DABORTS=0 -DHEALS=0                                   | holds 13,043,765 | kill, cut
     hand hash   |                                                        | holds 120,755,360 | all four: 8 min, 5 GB
     hand live live | -DKILLS=0 -DHEALS=0                                 | holds 1,676,884 | cut, abort
     hand hashcycles | -DABORTS=0 -DHEALS=0                               | holds 25,926,039 | kill, cut: with Monitor, every run ends with a terminal
     hand safety | -DADOPT -DKILLS=0 -DABORTS=0                           | holds 2,227,339 | adoption: cut, heal
     hand hash   | -DADOPT -DABORTS=0 -DHEALS=0                           | holds 30,443,899 | adoption: kill, cut
     safety      | -DM_NOFENCEALL -DABORTS=0 -DHEALS=0                    | finds termep<oe[o] | a new owner tells its epoch to nobody: work after a terminal (hole 1 of the draft)
     safety      | -DM_ORPHSTOP -DHEALS=0                                 | finds p==on[o] | STOPPING becomes ORPHANED: a gap at the owner (hole 2)
     hand safety | -DM_ADOPTEND -DADOPT -DABORTS=0 -DHEALS=0              | finds cterm==1 | adoption does not compare ends: no terminal at rest (hole 3)
     safety      | -DM_LEAVEATTEMPTS -DKILLS=0 -DCUTS=0 -DHEALS=0 -DODRAINS=1 | finds we[0]==0 | an owner that hands back leaves its attempts to the next owner, and none comes (hole 4)
     safety      | -DM_ADOPTANY -DADOPT -DABORTS=0 -DHEALS=0              | finds cterm==1 | any job is adopted: no terminal at rest
     safety      | -DM_NOMIRROR -DHEALS=0 -DCUTS=0                        | finds ==ch | hidden tokens are not at the gateway: contradicted output
     safety      | -DM_LATEMIRROR -DHEALS=0 -DCUTS=0                      | finds ==ch | fed first, mirrored later: contradicted output
     safety      | -DM_SPLITEND -DHEALS=0 -DCUTS=0 -DABORTS=0             | finds !(cend) | an end is not kept with its output: output after the end
     safety      | -DM_NOEPOCH -DKILLS=0 -DABORTS=0                       | finds p==cn | the gateway takes any epoch: doubled output (needs the heal; else closing lost links suffices)
     safety      | -DM_NOFENCE -DKILLS=0 -DABORTS=0 -DHEALS=0             | finds oe[o]>=wf[w] | a worker without a fence
     safety      | -DM_ORPHSTART -DHEALS=0                                | finds ost[o]== | an ORPHANED owner submits
*/
/* ---------------------------------------------------------------- bounds and fault budgets */
#ifndef N
#define N 2
#endif
#ifndef EMAX
#define EMAX 3
#endif
#ifndef AMAX
#define AMAX 3
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
#ifndef DRAINS
#define DRAINS 0
#endif
#ifndef ODRAINS
#define ODRAINS 0
#endif
#ifndef HEALS
#define HEALS 1
#endif
#define NONE 9
#define NOCUT 99


/* ---------------------------------------------------------------- links
   up-going frames are real FIFO channels, because a kill loses a suffix of what is in flight */
mtype = { OUT, JRN, TERM, FENCE, ENDED, HANDBACK };
mtype = { QUEUED, RUNNING, STOPPING, ORPHANED, DONE,
          PENDING, SUBMITTED, STREAMING, FINISHED, FAILED, REFUSED, CANCELLED, LOST,
          COMPLETED };

#include "moves.h"
#define MOVE_REQUEST(o, a, b) assert(ost[o] == a); ost[o] = b; TOOK(request, a, b)
#define MOVE_ATTEMPT(i, a, b) assert(att[i] == a); att[i] = b; TOOK(attempt, a, b)

chan OG[2] = [2] of { mtype, byte, byte, byte, bool, mtype };   /* type, epoch, pos, value, end, outcome */
chan WO[8] = [1] of { mtype, byte, byte, byte, byte, bool };    /* o*4+w: type, epoch, attempt, pos, value, end */


/* dead[0..1] orchestrators, dead[2..5] workers; the four arrays are each side's own view of its links */
bool dead[6];
bool gup[2]; bool ogup[2]; bool owup[8]; bool woup[8];
byte cut = NOCUT;      /* 0,1: gateway-orchestrator; 2+L(o,w): orchestrator-worker */
byte kills = KILLS, cuts = CUTS, aborts = ABORTS, drains = DRAINS, odrains = ODRAINS, heals = HEALS;

/* the client: terminals seen, outputs seen, their content, end seen */
byte cterm = 0, cn = 0, ch = 0; bool cend = 0;
byte termep = 0;      /* ghost: highest epoch whose owner has sent a terminal */
/* gateway: epoch, owner, done, abort wanted, abort sent; journal: upstream count, values, ended; downstream count, ended */
byte ge = 0, gown = NONE; bool gdone = 0, gabort = 0, gabsent = 0;
byte jn = 0, jb = 0, dn = 0; bool je = 0, de = 0;

/* owner: epoch, state, pending outcome; upstream count, values, ended, attempt, worker; the same for downstream; inputs fed */
#define IDLE 0
byte oe[2]; mtype ost[2], oout[2];
/* the attempts of each owner: upstream's at 2o, downstream's at 2o+1; 0 is none, which also stands for an ended one */
mtype att[4];
byte un[2], ub[2], ua[2], uw[2], on[2], da[2], dw[2], fed[2]; bool ue[2], oend[2];
#ifdef M_LATEMIRROR
byte mir[2];
#endif
/* workers 0,1 upstream (TOKENS: free choice of values and of the end), 2,3 downstream (REPLAY: a function of its inputs):
   key (epoch, attempt), owner, tokens made or inputs taken, their values, end, sent, fence, orphaned */
byte we[4], wa[4], wo[4], wn[4], wb[4], wp[4], wf[4]; bool wend[4], worph[4];

#define MASK(i) ((1 << (i)) - 1)
#define L(o,w) ((o)*4+(w))
#define OWOK(o,w)  (owup[L(o,w)] && woup[L(o,w)] && !dead[2+(w)] && !dead[o] && cut != 2+L(o,w))
#define GOOK(o)    (gup[o] && ogup[o] && !dead[o] && cut != (o))

/* ---------------------------------------------------------------- claims at the client */
inline client_out(p, h, e) {
  assert(cterm == 0); assert(p == cn); assert(!cend); assert((h & MASK(p)) == ch);
  ch = h; cn++; cend = e
}
inline client_term(t) { assert(cterm == 0); assert(t != COMPLETED || cend); cterm++ }

inline endjob(w) { we[w]=0; wa[w]=0; wo[w]=0; wn[w]=0; wb[w]=0; wend[w]=0; wp[w]=0; worph[w]=0 }

/* An attempt leaves for an end state, which is not kept. */
inline end_lost(i) {
  if :: att[i] == SUBMITTED -> MOVE_ATTEMPT(i, SUBMITTED, LOST) :: att[i] == STREAMING -> MOVE_ATTEMPT(i, STREAMING, LOST) :: else fi;
  att[i] = 0
}
inline end_stopped(i) {       /* told to stop, and taken as ended by the answer */
  if :: att[i] == SUBMITTED -> MOVE_ATTEMPT(i, SUBMITTED, STOPPING); MOVE_ATTEMPT(i, STOPPING, CANCELLED)
     :: att[i] == STREAMING -> MOVE_ATTEMPT(i, STREAMING, STOPPING); MOVE_ATTEMPT(i, STOPPING, CANCELLED)
     :: else
  fi;
  att[i] = 0
}
inline end_handed_back(i) {
  if :: att[i] == SUBMITTED -> MOVE_ATTEMPT(i, SUBMITTED, CANCELLED) :: att[i] == STREAMING -> MOVE_ATTEMPT(i, STREAMING, CANCELLED) :: else fi;
  att[i] = 0
}
inline start(i) { att[i] = PENDING; MOVE_ATTEMPT(i, PENDING, SUBMITTED) }
inline got_output(i, end) {
  if :: att[i] == SUBMITTED -> MOVE_ATTEMPT(i, SUBMITTED, STREAMING) :: else fi;
  if :: end -> MOVE_ATTEMPT(i, STREAMING, FINISHED); att[i] = 0 :: else fi
}
/* frames owner -> worker, taken as atomic: a late frame is the same as a late step of the owner */
inline abort_att(o, w, a) {
  if :: w != NONE && OWOK(o,w) && we[w] == oe[o] && wa[w] == a && wo[w] == o -> endjob(w) :: else fi
}
inline kill_attempts(o) { abort_att(o, uw[o], ua[o]); abort_att(o, dw[o], da[o]); end_stopped(2*o); end_stopped(2*o+1); uw[o] = NONE; dw[o] = NONE }
inline forget(o) { ost[o] = DONE; att[2*o] = 0; att[2*o+1] = 0; un[o]=0; ub[o]=0; ue[o]=0; on[o]=0; oend[o]=0; fed[o]=0; ua[o]=0; da[o]=0; uw[o]=NONE; dw[o]=NONE }
inline finish(o) {
  if :: ost[o] == QUEUED   -> MOVE_REQUEST(o, QUEUED, DONE)
     :: ost[o] == RUNNING  -> MOVE_REQUEST(o, RUNNING, DONE)
     :: ost[o] == STOPPING -> MOVE_REQUEST(o, STOPPING, DONE)
     :: ost[o] == ORPHANED -> MOVE_REQUEST(o, ORPHANED, DONE)
  fi;
  forget(o)
}

/* a new owner's epoch is told to every worker it can reach */
inline fence1(o, w) {
  if :: OWOK(o,w) && oe[o] > wf[w] -> wf[w] = oe[o];
#ifdef ADOPT
        if :: we[w] != 0 && we[w] < oe[o] -> worph[w] = 1 :: else fi   /* silent, may be adopted in the orphan window */
#else
        if :: we[w] != 0 && we[w] < oe[o] -> endjob(w) :: else fi
#endif
     :: else fi
}
inline fenceall(o) { if :: oe[o] > 1 -> fence1(o,0); fence1(o,1); fence1(o,2); fence1(o,3) :: else fi }
/* switches for the mutation runs */
#ifdef M_NOFENCEALL
#define FENCEALL(o) skip
#else
#define FENCEALL(o) fenceall(o)
#endif
#ifdef M_NOEPOCH
#define GW_ACCEPT(e,o) (!gdone)
#else
#define GW_ACCEPT(e,o) (e == ge && gown == o && !gdone)
#endif
#ifdef M_SPLITEND
#define GW_END(v,x) skip
#else
#define GW_END(v,x) v = x
#endif
#ifdef M_ADOPTEND
#define UEND(w,o) true
#else
#define UEND(w,o) (!(wend[w] && wn[w] == un[o]))   /* the end mark is part of what must agree */
#endif
#ifdef M_ADOPTANY
#define ADOPTABLE(w,o) true
#else
#define ADOPTABLE(w,o) (wn[w] <= un[o] && (ub[o] & MASK(wn[w])) == wb[w] && (!wend[w] || (ue[o] && wn[w] == un[o])))
#endif
#if defined(M_NOMIRROR) || defined(M_LATEMIRROR)
#define MIRROR false
#else
#define MIRROR true
#endif
#ifdef M_LEAVEATTEMPTS
#define LEAVE(o) end_lost(2*o); end_lost(2*o+1); uw[o] = NONE; dw[o] = NONE
#else
#define LEAVE(o) kill_attempts(o)
#endif
#ifdef M_NOFENCE
#define WFENCE(w,e) false
#else
#define WFENCE(w,e) (e < wf[w])
#endif
#ifdef M_ORPHSTART
#define OSTART(o) (ost[o] == RUNNING || ost[o] == ORPHANED)
#else
#define OSTART(o) (ost[o] == RUNNING)
#endif
/* frames gateway -> owner */
inline open(o) {
  if :: GOOK(o) && ge > oe[o] ->
#ifdef ADOPT
        end_lost(2*o); end_lost(2*o+1);
        uw[o] = NONE; dw[o] = NONE;   /* also an owner's own old attempts go on only by adoption */
#else
        kill_attempts(o);
#endif
        oe[o] = ge; ost[o] = QUEUED;  /* a new record, whatever the old one was */
        FENCEALL(o);
#ifdef M_LATEMIRROR
        mir[o] = jn;
#endif
        un[o] = jn; ub[o] = jb; ue[o] = je; on[o] = dn; oend[o] = de; ua[o] = 0; da[o] = 0; fed[o] = 0
     :: else fi
}
inline fenced(o, e) {
  if :: e > oe[o] && ost[o] != IDLE && ost[o] != DONE -> kill_attempts(o); finish(o) :: else fi
}

/* start of stage work at a worker: fenced by epoch */
inline submit(o, w, a, pos) {
  assert(ost[o] == RUNNING);                /* an owner starts nothing after its terminal, abort or orphaning */
  if
  :: !OWOK(o,w)                           /* lost on the way */
  :: OWOK(o,w) && WFENCE(w, oe[o]) -> fenced(o, wf[w])
  :: else ->
     assert(oe[o] >= wf[w]);              /* no work of a fenced owner */
     assert(termep < oe[o]);              /* no work after a terminal of this or a later owner */
     wf[w] = oe[o];
#ifdef ADOPT
     if
     :: we[w] != 0 && w < 2 && wn[w] >= un[o] && (wb[w] & MASK(un[o])) == ub[o] && UEND(w,o) ->  /* tokens made extend the journal: keep them, send again from un */
        wp[w] = un[o]
     :: we[w] != 0 && w >= 2 && ADOPTABLE(w,o) ->                                    /* inputs eaten are a prefix of the journal */
        if :: wn[w] <= un[o] -> wn[w] = un[o]; wb[w] = ub[o]; wend[w] = ue[o] :: else fi; wp[w] = pos
     :: else -> wn[w] = un[o]; wb[w] = ub[o]; wend[w] = (ue[o] && w >= 2); wp[w] = (w < 2 -> un[o] : pos)
     fi;
#else
     wn[w] = un[o]; wb[w] = ub[o]; wend[w] = (ue[o] && w >= 2); wp[w] = (w < 2 -> un[o] : pos);
#endif
     we[w] = oe[o]; wa[w] = a; wo[w] = o; worph[w] = 0
  fi
}

proctype Gateway() {
  byte o, e, p, h; bool x; mtype t, oc;
  do
  :: atomic { !gdone && gown == NONE && !gabort && ge < EMAX && (gup[0] || gup[1]) ->
       if :: gup[0] -> o = 0 :: gup[1] && ge > 0 -> o = 1 fi;
       ge++; gown = o; open(o); o = 0 }
  :: atomic { !gdone && gown == NONE && (gabort || ge == EMAX || (!gup[0] && !gup[1])) ->
       if :: gabort -> client_term(CANCELLED) :: else -> client_term(FAILED) fi; gdone = 1 }
  :: atomic { !gdone && !gabort && aborts > 0 -> aborts--; gabort = 1 }
  :: atomic { !gdone && gabort && !gabsent && gown != NONE ->
       gabsent = 1;
       if :: GOOK(gown) && oe[gown] == ge && ost[gown] == RUNNING -> MOVE_REQUEST(gown, RUNNING, STOPPING); oout[gown] = CANCELLED
          :: GOOK(gown) && oe[gown] == ge && ost[gown] == QUEUED -> MOVE_REQUEST(gown, QUEUED, STOPPING); oout[gown] = CANCELLED
          :: else
       fi }
  :: atomic { gup[0] && cut != 0 && len(OG[0]) > 0 -> o = 0; goto rcv }
  :: atomic { gup[1] && cut != 1 && len(OG[1]) > 0 -> o = 1;
rcv:   OG[o]?t,e,p,h,x,oc;
       if
       :: GW_ACCEPT(e,o) && t == OUT -> client_out(p,h,x); dn = p+1; GW_END(de,x)
       :: GW_ACCEPT(e,o) && t == JRN -> assert(p == jn); jn++; jb = jb | (h << p); GW_END(je,x)
       :: GW_ACCEPT(e,o) && t == TERM -> client_term(oc); gdone = 1
       :: GW_ACCEPT(e,o) && t == HANDBACK -> gown = NONE; gabsent = 0
       :: else -> if :: e < ge && GOOK(o) -> fenced(o, ge) :: else fi
       fi;
       e = 0; p = 0; h = 0; x = 0; oc = 0; t = 0; o = 0 }
  :: atomic { gup[0] && gown == 0 && (dead[0] || cut == 0 || !ogup[0]) -> o = 0; goto lost }
  :: atomic { gup[1] && gown == 1 && (dead[1] || cut == 1 || !ogup[1]) -> o = 1;
lost:  gup[o] = 0;
       do :: len(OG[o]) > 0 -> OG[o]?_,_,_,_,_,_ :: else -> break od;
       gown = NONE; gabsent = 0; o = 0 }
  od
}

proctype Orch(byte o) {
  byte w, e, a, p, h; bool x; mtype t;
  do
  :: atomic { !dead[o] && ost[o] == QUEUED -> MOVE_REQUEST(o, QUEUED, RUNNING) }
  /* submit: upstream stage (TOKENS), downstream stage (REPLAY) */
  :: atomic { !dead[o] && OSTART(o) && uw[o] == NONE && !ue[o] && ua[o] < AMAX && (owup[L(o,0)] || owup[L(o,1)]) ->
       if :: owup[L(o,0)] -> w = 0 :: owup[L(o,1)] && (o == 1 || ua[o] > 0 || ge > 1) -> w = 1
          :: !owup[L(o,0)] -> w = 1 fi;
       ua[o]++; uw[o] = w; start(2*o); submit(o, w, ua[o], 0); w = 0 }
  :: atomic { !dead[o] && OSTART(o) && dw[o] == NONE && !oend[o] && da[o] < AMAX && (owup[L(o,2)] || owup[L(o,3)]) ->
       if :: owup[L(o,2)] -> w = 2 :: owup[L(o,3)] && (o == 1 || da[o] > 0 || ge > 1) -> w = 3
          :: !owup[L(o,2)] -> w = 3 fi;
       da[o]++; dw[o] = w; start(2*o+1); fed[o] = un[o]; submit(o, w, da[o], on[o]); w = 0 }
  /* stream edge */
  :: atomic { !dead[o] && ost[o] == RUNNING && dw[o] != NONE && fed[o] < un[o] ->
       w = dw[o];
       if :: OWOK(o,w) && we[w] == oe[o] && wa[w] == da[o] && wo[w] == o ->
#ifdef M_ADOPTANY
             if :: fed[o] < wn[w] -> goto dupl :: else fi;
#endif
             assert(fed[o] == wn[w]);
             wb[w] = wb[w] | (((ub[o] >> fed[o]) & 1) << fed[o]); wn[w]++; wend[w] = (ue[o] && fed[o] == un[o]-1)
          :: else fi;
#ifdef M_ADOPTANY
dupl:
#endif
       fed[o]++; w = 0 }
#ifdef M_LATEMIRROR
  :: atomic { !dead[o] && ost[o] == RUNNING && mir[o] < un[o] && ogup[o] && len(OG[o]) < 2 ->
       OG[o]!JRN(oe[o],mir[o],(ub[o] >> mir[o]) & 1,ue[o] && mir[o] == un[o]-1,0); mir[o]++ }
#endif
  /* an owner that is drained gives the request up in good order */
  :: atomic { !dead[o] && odrains > 0 && (ost[o] == QUEUED || ost[o] == RUNNING) && ogup[o] && len(OG[o]) < 2 ->
       odrains--; LEAVE(o); OG[o]!HANDBACK(oe[o],0,0,0,0); finish(o) }
  /* completion: one compare-and-set with the abort, because both leave RUNNING */
  :: atomic { !dead[o] && ost[o] == RUNNING && oend[o] && ue[o] && uw[o] == NONE && dw[o] == NONE && ogup[o] && len(OG[o]) < 2 ->
       OG[o]!TERM(oe[o],0,0,0,COMPLETED); termep = oe[o]; finish(o) }
  /* no replica, or attempts spent */
  :: atomic { !dead[o] && ost[o] == RUNNING &&
        ((uw[o] == NONE && !ue[o] && (ua[o] == AMAX || (!owup[L(o,0)] && !owup[L(o,1)]))) ||
         (dw[o] == NONE && !oend[o] && (da[o] == AMAX || (!owup[L(o,2)] && !owup[L(o,3)])))) ->
       MOVE_REQUEST(o, RUNNING, STOPPING); oout[o] = FAILED }
  /* stopping: end the attempts, then the terminal */
  :: atomic { !dead[o] && ost[o] == STOPPING && ogup[o] && len(OG[o]) < 2 ->
       kill_attempts(o); OG[o]!TERM(oe[o],0,0,0,oout[o]); termep = oe[o]; finish(o) }
  :: atomic { !dead[o] && owup[L(o,0)] && cut != 2+L(o,0) && len(WO[L(o,0)]) > 0 && len(OG[o]) < 2 -> w = 0; goto rcv }
  :: atomic { !dead[o] && owup[L(o,1)] && cut != 2+L(o,1) && len(WO[L(o,1)]) > 0 && len(OG[o]) < 2 -> w = 1; goto rcv }
  :: atomic { !dead[o] && owup[L(o,2)] && cut != 2+L(o,2) && len(WO[L(o,2)]) > 0 && len(OG[o]) < 2 -> w = 2; goto rcv }
  :: atomic { !dead[o] && owup[L(o,3)] && cut != 2+L(o,3) && len(WO[L(o,3)]) > 0 && len(OG[o]) < 2 -> w = 3;
rcv:   WO[L(o,w)]?t,e,a,p,h,x;
       if
       :: t == OUT && w < 2 && e == oe[o] && a == ua[o] && uw[o] == w && (ost[o] == RUNNING || ost[o] == ORPHANED) ->
            assert(p == un[o]); got_output(2*o, x); un[o]++; ub[o] = ub[o] | (h << p); ue[o] = x;
            if :: ogup[o] && MIRROR -> OG[o]!JRN(oe[o],p,h,x,0) :: else fi;
            if :: x -> uw[o] = NONE :: else fi
       :: t == OUT && w >= 2 && e == oe[o] && a == da[o] && dw[o] == w && (ost[o] == RUNNING || ost[o] == ORPHANED) ->
            assert(p == on[o]); got_output(2*o+1, x); on[o]++; oend[o] = x;
            if :: ogup[o] -> OG[o]!OUT(oe[o],p,h,x,0) :: else fi;
            if :: x -> dw[o] = NONE :: else fi
       :: t == HANDBACK && w < 2 && e == oe[o] && a == ua[o] && uw[o] == w -> end_handed_back(2*o); uw[o] = NONE
       :: t == FENCE -> fenced(o, e)
#ifdef M_LEAVEATTEMPTS
       :: t == OUT && ost[o] == DONE -> abort_att(o, w, a)
#endif
       :: else
       fi; w=0;e=0;a=0;p=0;h=0;x=0;t=0 }
  /* worker link lost: only when something is at stake */
  :: atomic { !dead[o] && uw[o] != NONE && owup[L(o,uw[o])] && (dead[2+uw[o]] || cut == 2+L(o,uw[o]) || !woup[L(o,uw[o])]) -> w = uw[o]; goto lost }
  :: atomic { !dead[o] && dw[o] != NONE && owup[L(o,dw[o])] && (dead[2+dw[o]] || cut == 2+L(o,dw[o]) || !woup[L(o,dw[o])]) -> w = dw[o];
lost:  owup[L(o,w)] = 0;
       do :: len(WO[L(o,w)]) > 0 -> WO[L(o,w)]?_,_,_,_,_,_ :: else -> break od;
       if :: uw[o] == w -> end_lost(2*o); uw[o] = NONE :: dw[o] == w -> end_lost(2*o+1); dw[o] = NONE fi; w = 0 }
  /* gateway link lost */
  :: atomic { !dead[o] && ogup[o] && (cut == o || !gup[o]) && ost[o] != IDLE -> ogup[o] = 0;
#ifdef M_ORPHSTOP
       if :: ost[o] == QUEUED || ost[o] == RUNNING || ost[o] == STOPPING -> ost[o] = ORPHANED :: else fi }
#else
       if :: ost[o] == QUEUED -> MOVE_REQUEST(o, QUEUED, ORPHANED)
          :: ost[o] == RUNNING -> MOVE_REQUEST(o, RUNNING, ORPHANED)
          :: ost[o] == STOPPING -> kill_attempts(o); finish(o)
          :: else
       fi }
#endif
  /* orphan window over */
  :: atomic { !dead[o] && ost[o] == ORPHANED -> kill_attempts(o); finish(o) }
  od
}

proctype Worker(byte w) {
  byte o, b; bool x;
  do
#ifdef ADOPT
  /* the engine runs ahead of what was sent */
  :: atomic { !dead[2+w] && we[w] != 0 && w < 2 && wn[w] < N && !wend[w] && wn[w] < wp[w] + 1 ->
       if :: b = 0 :: b = 1 fi;
       if :: wend[w] = 1 :: wn[w] < N-1 fi;
       wb[w] = wb[w] | (b << wn[w]); wn[w]++; b = 0 }
  :: atomic { !dead[2+w] && we[w] != 0 && !worph[w] && len(WO[L(wo[w],w)]) < 1 && w < 2 && wp[w] < wn[w] ->
       x = (wend[w] && wp[w] == wn[w]-1);
       WO[L(wo[w],w)]!OUT(we[w],wa[w],wp[w],(wb[w] >> wp[w]) & 1,x); wp[w]++;
       if :: x -> endjob(w) :: else fi; x = 0 }
#else
  :: atomic { !dead[2+w] && we[w] != 0 && !worph[w] && len(WO[L(wo[w],w)]) < 1 && w < 2 && wn[w] < N ->
       if :: b = 0 :: b = 1 fi;
       if :: x = 1 :: wn[w] < N-1 -> x = 0 fi;
       WO[L(wo[w],w)]!OUT(we[w],wa[w],wn[w],b,x); wb[w] = wb[w] | (b << wn[w]); wn[w]++; wp[w] = wn[w];
       if :: x -> endjob(w) :: else fi; b = 0; x = 0 }
#endif
  :: atomic { !dead[2+w] && we[w] != 0 && !worph[w] && len(WO[L(wo[w],w)]) < 1 && w >= 2 && wp[w] < wn[w] ->
       x = (wend[w] && wp[w] == wn[w]-1);
       WO[L(wo[w],w)]!OUT(we[w],wa[w],wp[w],wb[w] & MASK(wp[w]+1),x); wp[w]++;
       if :: x -> endjob(w) :: else fi; x = 0 }
  :: atomic { !dead[2+w] && w < 2 && drains > 0 && we[w] != 0 && !worph[w] && len(WO[L(wo[w],w)]) < 1 ->
       drains--; WO[L(wo[w],w)]!HANDBACK(we[w],wa[w],0,0,0); endjob(w) }
  :: atomic { !dead[2+w] && we[w] != 0 && !worph[w] && woup[L(wo[w],w)] && (dead[wo[w]] || cut == 2+L(wo[w],w) || !owup[L(wo[w],w)]) ->
       woup[L(wo[w],w)] = 0; worph[w] = 1 }
  :: atomic { !dead[2+w] && we[w] != 0 && worph[w] -> endjob(w) }
  od
}

proctype Env() {
  byte v;
  do
  :: atomic { kills > 0 && !gdone && ge > 0 -> kills--;
       if :: v = 0 :: v = 1 :: v = 2 :: v = 4 :: ge > 1 -> v = 3 :: ge > 1 -> v = 5 fi;
       dead[v] = 1;
       if :: v < 2 -> forget(v) :: else -> endjob((v-2)) fi; v = 0 }
  :: atomic { cuts > 0 && !gdone && ge > 0 -> cuts--;
       if :: cut = 0 :: cut = 2 :: cut = 4 fi }
  :: atomic { cut == 0 && heals > 0 -> heals--; cut = NOCUT }
  :: atomic { cut == NOCUT && heals < HEALS && !dead[0] && !gup[0] && !ogup[0] && len(OG[0]) == 0 -> gup[0] = 1; ogup[0] = 1 }
  od
}

#ifdef LIVE
ltl live { <> (cterm == 1) }
#endif
proctype Monitor() {
  timeout ->
     assert(cterm == 1);
     assert(we[0] == 0 && we[1] == 0 && we[2] == 0 && we[3] == 0);
     assert((dead[0] || ost[0] == IDLE || ost[0] == DONE) && (dead[1] || ost[1] == IDLE || ost[1] == DONE))
}

init { atomic {
  byte i; for (i : 0 .. 7) { owup[i] = 1; woup[i] = 1 }; i = 0;
  gup[0] = 1; gup[1] = 1; ogup[0] = 1; ogup[1] = 1;
  uw[0] = NONE; uw[1] = NONE; dw[0] = NONE; dw[1] = NONE;
  run Gateway(); run Orch(0); run Orch(1);
  run Worker(0); run Worker(1); run Worker(2); run Worker(3); run Env(); run Monitor()
} }
