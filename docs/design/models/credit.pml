/* Credit, the journal and engine slots, as a Promela model (spin 6.5).

   REQS requests of one pipeline, U, B, A and J: U feeds B by a stream edge, A by a whole edge and J by a stream edge; B feeds J by a stream
   edge, A by a whole one. J takes an output of U and one of B in turn: it is reconvergent twice. B gives an output only when LAG more
   inputs came, so that J's two streams drift apart. With -DSTREAMS there is no A, so that J runs while U does. U and J
   are visible, in one FIFO that the client takes from. All stages of all requests share one pool of SLOTS engine slots; which stage that wants one gets it is a free choice, and an attempt holds it until it ends, credit or not.
   Windows: W for a worker's outputs, IW for its inputs, GW for the client.
   Faults: SLOW clients that stop reading for good, ABORTS, LOSSES of an attempt of U or B, which starts again under a new key (U from its position,
   B from its first input with a cursor). Every fault but a loss may be restricted to request 0 with -DHARMLESS.
   A late grant is the same as a late step of its receiver, so grants are taken as atomic.

   Claims.  No key has more outputs that are not settled than its window; no input and no output to the client goes without credit. What the journal
   holds for consumers that do not run or have two streams is bounded by JMAX and one output; what would go beyond it fails the request with
   OVERLOADED and waits for nothing. Slots: never more in use than there are, none in use at rest. At rest every request has ended; nothing
   repeats here, so there is no other way to go on for ever. A request that nothing happened to completes with everything read: with -DHARMLESS
   request 1 does, whatever becomes of request 0.

   Checks (`python -m tools.models` runs them; with `--all` those marked `hand` too; defaults: one request, four slots, no fault):
     safety      |                                              | holds 7,940 |
     cycles      | -DLOSSES=1                                   | holds 178,925 |
     safety      | -DSTREAMS                                    | holds 9,062 |
     safety      | -DSLOTS=1                                    | holds 1,208 |
     safety      | -DJMAX=2                                     | holds 852 |
     safety      | -DLOSSES=2 -DSTREAMS -DSLOTS=2               | holds 390,071 |
     safety      | -DSLOTS=1 -DREQS=2 -DT=3 -DLAG=2             | holds 119,053 |
     safety      | -DSLOTS=1 -DREQS=2 -DT=2 -DLAG=1 -DW=1 -DGW=1 -DHARMLESS -DSLOW=1 | holds 77,931 | a client that stops reading harms nobody else
     hand safety | -DSLOTS=1 -DREQS=2 -DT=3 -DLAG=2 -DHARMLESS -DSLOW=1 | holds 1,717,255 |
     hand safety | -DSLOTS=2 -DREQS=2 -DT=3 -DLAG=2 -DHARMLESS -DSLOW=1 -DABORTS=1 | holds 56,103,925 | 7 min, 6 GB
     safety      | -DM_EVERYONEHOLDS                            | finds used==0 | every consumer holds its producer, running or not
     safety      | -DM_IDLEHOLDS -DSLOTS=1                      | finds used==0 | a consumer holds its producer before it runs: it waits for the producer's slot
     safety      | -DM_JOINHOLDS -DSTREAMS                      | finds used==0 | a consumer of two streams holds both
     safety      | -DM_NOCREDIT                                 | finds <=2 | a worker does not wait for credit
     safety      | -DM_CARRYCREDIT -DLOSSES=1                   | finds <=2 | a new key starts with the old one's credit
     safety      | -DM_JOURNALWAITS -DJMAX=2                    | finds used==0 | a full journal waits and does not fail
     safety      | -DM_PATIENT -DSLOW=1                         | finds r[0].state!= | no slow_s
     safety      | -DM_WAITFOREVER -DSTREAMS -DLOSSES=1 -DSLOTS=2 | finds used==0 | a stage that is re-driven waits for a slot that its own consumers hold, without end
*/
#ifndef T
#define T 5
#endif
#ifndef LAG
#define LAG 3
#endif
#ifndef W
#define W 2
#endif
#ifndef IW
#define IW 1
#endif
#ifndef GW
#define GW 2
#endif
#ifndef REQS
#define REQS 1
#endif
#ifndef SLOTS
#define SLOTS 4
#endif
#ifndef JMAX
#define JMAX 99
#endif
#ifndef SLOW
#define SLOW 0
#endif
#ifndef ABORTS
#define ABORTS 0
#endif
#ifndef LOSSES
#define LOSSES 0
#endif

mtype = { OPEN, COMPLETED, OVERLOADED, SLOW_CONSUMER, CANCELLED };

typedef Lane {
  byte made;      /* outputs that the owner has */
  byte base;      /* of them, those under earlier keys */
  byte passed;    /* visible: given to the client */
  byte floor      /* settled when a consumer started: what was granted stays granted */
};
typedef Feed {
  byte sent;      /* outputs that the consumer was sent */
  byte taken
};
typedef Request {
  mtype state;
  bool runs[4], over[4], lost[4];
  Lane u, b, j;
  Feed ub, uj, bj;
  bool a_made;
  byte read;
  bool slow
};
Request r[REQS];
chan held0 = [2*T] of { bit };   /* 0: of U, 1: of J */
#if REQS > 1
chan held1 = [2*T] of { bit };
#endif
byte used, slow = SLOW, aborts = ABORTS, losses = LOSSES;

#define U 0
#define B 1
#define A 2
#define J 3
#define MIN(x, y) ((x) < (y) -> (x) : (y))
#define MAX(x, y) ((x) > (y) -> (x) : (y))

/* What is settled of a lane: the client's window took it, and every running consumer whose only stream input it is was sent it. */
#ifdef M_EVERYONEHOLDS       /* every consumer holds its producer, running or not, whatever else it reads */
#define U_SETTLED(x) MIN(r[x].u.passed, MIN(r[x].ub.sent, r[x].uj.sent))
#define B_SETTLED(x) r[x].bj.sent
#else
#ifdef M_IDLEHOLDS           /* a consumer holds its only stream before it runs */
#define U_SETTLED(x) (r[x].over[B] -> r[x].u.passed : MIN(r[x].u.passed, r[x].ub.sent))
#else
#ifdef M_JOINHOLDS           /* a running consumer holds each of its streams */
#define U_SETTLED(x) MIN(MIN(r[x].u.passed, (r[x].runs[B] -> r[x].ub.sent : r[x].u.made)), (r[x].runs[J] -> r[x].uj.sent : r[x].u.made))
#else
#define U_SETTLED(x) MAX(r[x].u.floor, MIN(r[x].u.passed, (r[x].runs[B] -> r[x].ub.sent : r[x].u.made)))
#endif
#endif
#ifdef M_JOINHOLDS
#define B_SETTLED(x) (r[x].runs[J] -> r[x].bj.sent : r[x].b.made)
#else
#define B_SETTLED(x) r[x].b.made
#endif
#endif
#define J_SETTLED(x) r[x].j.passed
#ifdef M_CARRYCREDIT         /* a new key has what was granted to the old one */
#define BASE(l) 0
#define CARRIED W
#else
#define BASE(l) l.base
#define CARRIED 0
#endif
#define UNSETTLED(l, settled) (l.made - MAX(l.base, settled))
#ifdef M_NOCREDIT
#define CREDIT(l, settled) true
#else
#define CREDIT(l, settled) (l.made < MAX(BASE(l), settled) + W + (l.base > 0 -> CARRIED : 0))
#endif

/* The journal: what some consumer has still to be sent. */
#define PENDING(x) (r[x].u.made - MIN((r[x].over[B] -> r[x].u.made : r[x].ub.sent), r[x].uj.sent) + r[x].b.made - r[x].bj.sent)

inline end_request(x, outcome) {
  r[x].state = outcome;
  used = used - (r[x].runs[U] + r[x].runs[B] + r[x].runs[A] + r[x].runs[J]);
  r[x].runs[U] = 0; r[x].runs[B] = 0; r[x].runs[A] = 0; r[x].runs[J] = 0
}
inline start(x, s) {
  assert(used < SLOTS); used++; r[x].runs[s] = 1; r[x].lost[s] = 0
}
inline end_attempt(x, s) { r[x].runs[s] = 0; r[x].over[s] = 1; used-- }
#ifdef M_JOURNALWAITS
#define JOURNAL(x) (PENDING(x) < JMAX)
#else
#define JOURNAL(x) true
#endif
inline kept(x) {
  if :: PENDING(x) > JMAX -> assert(PENDING(x) == JMAX + 1); end_request(x, OVERLOADED) :: else fi
}
#define WANTS(x, s) (r[x].state == OPEN && !r[x].runs[s] && !r[x].over[s] && used < SLOTS)
#define GOES(x, s)  (r[x].state == OPEN && r[x].runs[s])
#define HARMED(x)   (x == 0 || !HARM)
#ifdef HARMLESS
#define HARM true
#else
#define HARM false
#endif

#ifdef STREAMS
#define A_MADE(x) true
#else
#define A_MADE(x) r[x].a_made
#endif

proctype Owner(byte x; chan held) {
  bit lane;
  do
  /* slots */
  :: atomic { WANTS(x, U) -> start(x, U) }
  :: atomic { WANTS(x, B) && r[x].u.made > 0 -> r[x].u.floor = U_SETTLED(x); start(x, B) }
#ifndef STREAMS
  :: atomic { WANTS(x, A) && r[x].over[U] -> start(x, A) }
#endif
  :: atomic { WANTS(x, J) && A_MADE(x) && r[x].u.made > 0 && r[x].b.made > 0 -> start(x, J) }
  /* U */
  :: atomic { GOES(x, U) && r[x].u.made < T && CREDIT(r[x].u, U_SETTLED(x)) && JOURNAL(x) ->
       r[x].u.made++; held!0; assert(len(held) <= 2*W + LOSSES*W);
       assert(UNSETTLED(r[x].u, U_SETTLED(x)) <= W);
       if :: r[x].u.made == T -> end_attempt(x, U) :: else fi; kept(x) }
  /* U to B, and what B makes of it */
  :: atomic { GOES(x, B) && r[x].ub.sent < r[x].u.made && r[x].ub.sent - r[x].ub.taken < IW ->
       r[x].ub.sent++; assert(r[x].ub.sent - r[x].ub.taken <= IW) }
  :: atomic { GOES(x, B) && r[x].ub.taken < r[x].ub.sent &&
              (r[x].ub.taken < r[x].b.made + LAG || (CREDIT(r[x].b, B_SETTLED(x)) && JOURNAL(x))) ->
       r[x].ub.taken++;
       if :: r[x].ub.taken > r[x].b.made + LAG -> r[x].b.made++ :: else fi;
       assert(UNSETTLED(r[x].b, B_SETTLED(x)) <= W); kept(x) }
  /* U has ended, and so B gives what it still owes */
  :: atomic { GOES(x, B) && r[x].ub.taken == T && r[x].b.made < T && CREDIT(r[x].b, B_SETTLED(x)) && JOURNAL(x) ->
       r[x].b.made++; assert(UNSETTLED(r[x].b, B_SETTLED(x)) <= W); kept(x) }
  :: atomic { GOES(x, B) && r[x].b.made == T && r[x].ub.taken == T -> end_attempt(x, B) }
  /* A */
  :: atomic { GOES(x, A) -> r[x].a_made = 1; end_attempt(x, A) }
  /* U and B to J */
  :: atomic { GOES(x, J) && r[x].uj.sent < r[x].u.made && r[x].uj.sent - r[x].uj.taken < IW -> r[x].uj.sent++; assert(r[x].uj.sent - r[x].uj.taken <= IW) }
  :: atomic { GOES(x, J) && r[x].bj.sent < r[x].b.made && r[x].bj.sent - r[x].bj.taken < IW -> r[x].bj.sent++; assert(r[x].bj.sent - r[x].bj.taken <= IW) }
  :: atomic { GOES(x, J) && r[x].uj.taken < r[x].uj.sent && r[x].bj.taken < r[x].bj.sent && CREDIT(r[x].j, J_SETTLED(x)) ->
       r[x].uj.taken++; r[x].bj.taken++; r[x].j.made++; held!1;
       assert(UNSETTLED(r[x].j, J_SETTLED(x)) <= W);
       if :: r[x].j.made == T -> end_attempt(x, J) :: else fi }
  /* to the client, in the order of arrival */
  :: atomic { r[x].state == OPEN && len(held) > 0 && r[x].u.passed + r[x].j.passed - r[x].read < GW ->
       held?lane;
       if :: lane == 0 -> r[x].u.passed++ :: else -> r[x].j.passed++ fi; lane = 0 }
  :: atomic { r[x].state == OPEN && !r[x].slow && r[x].read < r[x].u.passed + r[x].j.passed -> r[x].read++ }
  :: atomic { r[x].state == OPEN && r[x].read == 2*T -> end_request(x, COMPLETED); break }
  /* faults */
  :: atomic { slow > 0 && r[x].state == OPEN && HARMED(x) -> slow--; r[x].slow = 1 }
#ifndef M_PATIENT
  :: atomic { r[x].state == OPEN && r[x].slow && len(held) > 0 -> end_request(x, SLOW_CONSUMER); break }
  :: atomic { r[x].state == OPEN && r[x].slow && r[x].u.passed + r[x].j.passed == 2*T -> end_request(x, SLOW_CONSUMER); break }
#endif
  :: atomic { aborts > 0 && r[x].state == OPEN && HARMED(x) -> aborts--; end_request(x, CANCELLED); break }
  :: atomic { losses > 0 && GOES(x, U) -> losses--; used--; r[x].runs[U] = 0; r[x].lost[U] = 1; r[x].u.base = r[x].u.made }
  :: atomic { losses > 0 && GOES(x, B) -> losses--; used--; r[x].runs[B] = 0; r[x].lost[B] = 1; r[x].b.base = r[x].b.made; r[x].ub.sent = 0; r[x].ub.taken = 0 }
#ifndef M_WAITFOREVER
  /* redrive_s is over: its own stages downstream may hold the slot that it waits for */
  :: atomic { r[x].state == OPEN && used == SLOTS && (r[x].lost[U] || r[x].lost[B]) -> end_request(x, OVERLOADED); break }
#endif
  :: atomic { r[x].state == OVERLOADED -> break }
  od;
  do :: len(held) > 0 -> held?_ :: else -> break od
}

/* Nothing but a fault of the client's can end a request. */
#define PLENTY (JMAX > 2*T && (LOSSES == 0 || SLOTS >= 4*REQS))

/* At rest. */
active proctype Monitor() {
  timeout ->
    assert(used == 0);
    assert(r[0].state != OPEN);
#if SLOW == 0 && ABORTS == 0 && PLENTY
    assert(r[0].state == COMPLETED);
#endif
#if REQS > 1
    assert(r[1].state != OPEN);
#if (defined(HARMLESS) || SLOW == 0 && ABORTS == 0) && PLENTY
    assert(r[1].state == COMPLETED)
#endif
#endif
}
init { atomic {
  r[0].state = OPEN; run Owner(0, held0);
#if REQS > 1
  r[1].state = OPEN; run Owner(1, held1)
#endif
} }
