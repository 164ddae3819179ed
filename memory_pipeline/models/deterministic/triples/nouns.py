"""Tables of English nouns and adjectives that decide which objects the rules for triples accept.

They are heuristics and sometimes wrong. An object that they reject or miss gives no triple.
"""

from __future__ import annotations

from memory_pipeline.domain.text.words import word_set

#: Relations between people, and pets: ``has_sister``.
RELATIONS = word_set(
    """
    sister brother mother father mum mom dad mam son daughter wife husband partner girlfriend boyfriend fiance
    fiancee fiancé fiancée aunt uncle cousin niece nephew grandmother grandfather grandma grandpa gran granddad nan
    grandson granddaughter grandchild stepson stepdaughter stepmother stepfather stepsister stepbrother
    mother-in-law father-in-law sister-in-law brother-in-law son-in-law daughter-in-law godmother godfather godson
    goddaughter twin kid baby child ex friend flatmate roommate housemate boss manager supervisor colleague coworker
    co-worker teammate neighbour neighbor landlord landlady tenant teacher tutor coach trainer mentor pastor priest
    doctor dentist vet therapist physio lawyer solicitor accountant agent midwife nanny babysitter childminder
    apprentice assistant dog cat puppy kitten horse pony parrot rabbit hamster tortoise turtle
    """
)
#: Variant spellings and the stored one.
SPELLINGS = {"neighbor": "neighbour", "co-worker": "coworker", "fiancé": "fiance", "fiancée": "fiancee"}
#: Adjectives before a relation that do not change it.
RELATION_ADJECTIVES = word_set(
    """
    older elder younger little big oldest eldest youngest baby best old good close dear late new own only beloved
    middle current great
    """
)
#: Nouns after "have", "own" and "buy" that are not possessions: "I have an idea".
VAGUE_HEADS = word_set(
    """
    idea way fact thought vibe vibes concept look question questions ideas feeling feelings day time times fun
    chance doubt clue point problem problems issue issues headache cold trouble luck conversation memory memories
    access work interview break party dream dreams faith hope hopes lot lots bit plan plans meeting meetings
    appointment appointments exam exams test tests thing things stuff reason reasons need say word words go try
    weekend morning night evening week month year moment moments sense mind heart choice option options opinion
    opinions news update story stories experience experiences goal goals respect patience energy interest concern
    concerns worry worries regret regrets rest nap shower bath drink snack lunch dinner breakfast meal coffee chat
    talk call phonecall fight argument crush soft spot hunch suspicion reservations impression tendency habit knack
    role part place deadline minute second hour hours days weeks months years sound smell feel taste relationship
    bond connection impact effect influence difference support love passion gift people someone class classes lesson
    lessons practice training shift shifts homework trip flight holiday vacation visit guests guest friends company
    power control responsibility right rights job blast ball laugh hand handle eye ear advantage edge kind sort type
    couple number date session match game tournament event show concert gig recital performance line case order
    request favor favour suggestion recommendation answer result results hangover accident crisis sentence file
    error bug code list document report email message copy picture photo photos recommendations crap hell business
    beef bone axe friend mistakes mistake faults decisions destiny truth soul minutes score piece recipe opportunity
    preference life wedding surgery operation funeral delivery sale present presents surprise tooth cough fever flu
    rash
    """
)
#: Praise and degree: a noun with one of these states a feeling.
EVALUATIONS = word_set(
    """
    great good nice bad amazing awesome wonderful terrible awful horrible real total complete such huge big massive
    lovely beautiful perfect fantastic incredible brilliant crazy weird funny cool cute sweet true born bit little
    better poor slow decent solid strong weak natural excellent lot tad mere proper right wee hell fine lucky happy
    sad proud pretty fun blessed tough hard quick long rough busy talented gifted skilled remarkable outstanding
    legendary phenomenal truly
    """
)
TRAITS = word_set(
    """
    vegetarian vegan pescatarian diabetic asthmatic epileptic dyslexic autistic coeliac celiac lactose-intolerant
    gluten-free teetotal pregnant retired divorced widowed single married engaged left-handed right-handed
    self-employed unemployed bilingual trilingual deaf blind colour-blind colorblind color-blind short-sighted
    nearsighted long-sighted dead adopted gay lesbian bisexual queer straight transgender trans nonbinary non-binary
    asexual atheist agnostic catholic protestant christian muslim jewish hindu buddhist sikh orthodox mormon quaker
    anglican baptist lutheran presbyterian introverted extroverted ambidextrous anaemic anemic hypertensive
    claustrophobic arachnophobic dyspraxic neurodivergent insulin-dependent freelance hard-of-hearing half-polish
    hypothyroid immunocompromised paraplegic insomniac halal kosher
    """
)
TRAIT_PHRASES = frozenset(
    ("lactose intolerant", "colour blind", "color blind", "gluten intolerant", "left handed", "right handed",
     "self employed", "hard of hearing", "short sighted", "type 1 diabetic", "type 2 diabetic", "semi retired")
)  # fmt: skip
#: Roles: nouns for occupations and lasting states …
ROLES = word_set(
    """
    nurse chef cook mechanic pilot surgeon dentist vet judge priest monk nun rabbi imam pastor vicar deacon guide
    coach tutor clerk cashier maid butler guard soldier sergeant captain major lieutenant corporal private marine
    medic paramedic midwife carpenter plumber mason bricklayer roofer electrician welder plasterer joiner scaffolder
    architect analyst accountant consultant assistant student intern apprentice trainee graduate physicist chemist
    vegetarian vegan pescatarian diabetic atheist catholic christian muslim buddhist hindu widow widower orphan twin
    parent mother father mum mom dad grandmother grandfather grandma grandpa grandparent stepmum stepdad godmother
    godfather uncle aunt bachelor citizen native immigrant refugee expat veteran pensioner retiree teen teenager
    minor adult smoker non-smoker nonsmoker introvert extrovert teetotaller insomniac hemophiliac haemophiliac
    coeliac celiac asthmatic freelancer nanny entrepreneur nomad athlete sprinter goalkeeper goalie striker defender
    referee umpire lifeguard landlord landlady tenant homeowner shepherd vintner rancher model artist dj mc mp gp
    phd postdoc ceo cto cfo dba sysadmin devops qa undergrad freshman sophomore senior junior novelist poet bard
    critic cop policeman policewoman police-officer fireman firefighter attorney barrister paralegal notary
    solicitor professor lecturer scientist undertaker concierge host hostess bartender barista waitress waiter
    steward stewardess flight-attendant attendant sailor fisherman diplomat spy secretary receptionist dispatcher
    trucker courier postman mailman au-pair lead head boss chief deputy warden councillor mayor senator minister
    hygienist phlebotomist optician scout translator interpreter merchant florist butcher tailor cobbler lumberjack
    ballerina cellist organist treasurer cleaner caretaker carer caregiver
    """
)
#: … their endings, …
ROLE_ENDINGS = ("er", "or", "ist", "ian", "eer", "man", "woman", "ess", "smith", "wright", "herd")
#: … and nouns with these endings that are not roles.
NOT_ROLES = word_set(
    """
    bummer winner killer disaster matter number monster loser believer sucker dreamer lover starter newcomer
    stranger reminder order mess wonder pleaser factor terror horror error stickler procrastinator overthinker
    thinker keeper hater fighter survivor super master corner offer center centre letter paper border shoulder
    mirror person water weather power member sinner follower gamer-changer game-changer changer lifesaver life-saver
    go-getter learner bother laugher crier pushover talker listener supporter admirer beginner realist optimist
    pessimist perfectionist slacker goner stunner failer human woman man favor favour minor major tiger user
    contender process success business guess princess stress happiness fitness hoarder eater sleeper customer caller
    charmer joker darling outsider insider latecomer junior senior trooper trouper
    """
)
#: Roles that mean little without the other person: "an uncle".
RELATIVE_ROLES = word_set(
    """
    mother father mum mom dad parent grandmother grandfather grandma grandpa grandparent stepmum stepdad stepmother
    stepfather godmother godfather uncle aunt auntie sister brother stepsister stepbrother daughter granddaughter
    mother-in-law father-in-law sister-in-law brother-in-law daughter-in-law partner neighbour neighbor coworker
    co-worker
    """
)
#: Words that are not names at the start of a sentence.
NOT_NAMES = word_set(
    """
    coffee tea music life school dinner lunch breakfast love time money yoga art food nature family cooking work
    rent petrol gas water bread milk nothing everything everyone everybody nobody somebody someone anyone anybody
    something anything today tomorrow yesterday tonight mum mom dad grandma grandpa summer winter spring autumn
    christmas football tennis chess baking gardening traffic weather business practice therapy class history science
    maths math english german french spanish health sleep stress beer wine chocolate pizza sugar salt honesty god
    jesus hope faith death happiness friendship reading writing running swimming dancing singing people kids parking
    parenting training shipping tuition childcare insurance membership delivery entry admission monday tuesday
    wednesday thursday friday saturday sunday january february march april may june july august september october
    november december here there that this it he she they we you what who which where when why how if so and but or
    not no yes i my our your his her their its the a an some any all both each every one another other most many
    much such
    """
)
#: Possessions without an article: illnesses and family, and endings of illnesses.
KNOWN_HAD = word_set(
    """
    asthma diabetes epilepsy arthritis migraines anxiety depression adhd autism eczema psoriasis hayfever ocd ptsd
    dyslexia tinnitus insomnia anaemia anemia hypertension cancer gout sciatica lupus ms scoliosis endometriosis ibs
    kids children twins triplets grandchildren siblings grandkids
    """
)
KNOWN_HAD_ENDINGS = (
    "disease",
    "syndrome",
    "disorder",
    "itis",
    "osis",
    "emia",
    "aemia",
    "phobia",
    "algia",
    "betes",
    "pathy",
)
CONSUMED = word_set(
    """
    seat seats bun buns cookie cookies cup subscription voucher raffle ticket tickets coffee tea beer wine drink
    sandwich pizza cake meal present presents gift gifts round pint bread milk groceries food bottle bottles flowers
    card snack pie loaf lunch dinner breakfast
    """
)
#: Objects of a momentary liking, or of an idiom.
VAGUE_LIKES = word_set(
    """
    idea ideas way ways fact thought vibe vibes concept look sound feel feeling part parts bit choice style point
    attitude spirit energy enthusiasm seeing being having doing making getting hearing knowing when how what that
    spending giving sharing looking thinking hanging going talking working taking finding meeting keeping trying
    using catching chatting starting finishing telling saying bringing putting setting letting looks view colors
    message moment moments photo pic picture pictures photos suggestion suggestions things thing stuff person people
    someone somebody weekend company news sight reminder result results
    """
)
#: Objects of idioms with "play", "use" and "allergic to".
NOT_DONE = word_set(
    """
    role part parts safe dumb dead along around games game god fair hard favourites favorites nice host tricks trick
    music hell video songs song dirty catch gig gigs matches match show shows concert piece pieces thing things
    stuff influence resources voice imagination skills platform knowledge chance way ways up time word words phrase
    term help break rest advice extra first mornings mondays work bullshit people
    """
)
#: Gerunds that say little without their object: "I enjoy playing".
BARE_GERUNDS = word_set("playing watching buying wearing bringing breaking giving sending")
NOT_STUDIED = word_set("hard abroad late together alone full part again more lot lots day night exam exams notes")
#: Words that are neither a place nor a company, capitalized or not.
NOT_NAMED = word_set(
    """
    i god monday tuesday wednesday thursday friday saturday sunday christmas easter ok okay january february march
    april may june july august september october november december
    """
)
NOT_PLACES = word_set(
    """
    hope fear town peace sin debt pain denial comfort poverty harmony luxury silence bed work home school college
    uni university church jail prison hospital court nights weekends night least once first last lunch times free
    money squalor chaos abroad together alone pajamas pyjamas jeans trainers halls bits early fun nothing tears
    """
)
NOT_EMPLOYERS = word_set(
    """
    moment weekend weekends office desk company computer home house living loss time times best rest whole pace
    place firm night nights day days same table future change cause money school-night first end solution project
    projects team gym minute while bit summer
    """
)
NOT_JOBS = word_set("team whole pair result unit charm treat dream group matter couple volunteer-only hell bit")
LANGUAGES = word_set(
    """
    english german french spanish italian portuguese polish czech slovak russian ukrainian dutch flemish danish
    swedish norwegian finnish icelandic estonian latvian lithuanian hungarian romanian bulgarian greek turkish
    arabic hebrew persian farsi dari pashto kurdish urdu hindi punjabi bengali bangla tamil telugu gujarati marathi
    malayalam kannada sinhala nepali chinese mandarin cantonese japanese korean thai vietnamese khmer lao burmese
    malay indonesian tagalog filipino swahili amharic somali tigrinya yoruba igbo hausa zulu xhosa afrikaans twi
    wolof irish gaelic welsh scots basque catalan galician breton croatian serbian bosnian slovenian slovene
    macedonian albanian maltese luxembourgish yiddish latin esperanto georgian armenian azerbaijani kazakh uzbek
    mongolian maori hawaiian quechua bsl asl berber tamazight creole romani sanskrit faroese sorbian
    """
)
#: Origins, religions and star signs.
DEMONYMS = (LANGUAGES - word_set("mandarin latin esperanto sanskrit bsl asl")) | word_set(
    """
    british scottish american canadian australian mexican brazilian argentinian argentine chilean colombian peruvian
    venezuelan bolivian ecuadorian cuban jamaican haitian dominican african nigerian ghanaian kenyan ethiopian
    eritrean egyptian moroccan algerian tunisian libyan sudanese senegalese ivorian cameroonian congolese angolan
    mozambican zimbabwean zambian ugandan tanzanian rwandan iranian iraqi syrian lebanese jordanian palestinian
    israeli saudi kuwaiti emirati yemeni afghan pakistani indian sri-lankan bangladeshi nepalese tibetan taiwanese
    singaporean malaysian burmese cambodian laotian belgian swiss austrian european asian latvian belarusian
    moldovan kosovan cypriot catalan sicilian bavarian kiwi aussie texan cornish jewish muslim catholic christian
    protestant buddhist hindu sikh orthodox mormon quaker anglican methodist lutheran baptist capricorn taurus
    gemini leo virgo libra scorpio sagittarius aquarius pisces aries spaniard dane swede finn turk pole scot
    """
)
#: Adjectives that distinguish relations of one kind.
TELLING_ADJECTIVES = word_set("older elder younger little big oldest eldest youngest baby twin best middle")
#: Irregular plurals of relations, and relations that are always plural.
RELATIVES = word_set("parents grandparents children grandchildren kids siblings twins in-laws wives")
#: Convictions that are written like names: "my uncle is Republican".
CONVICTIONS = word_set("republican democrat conservative liberal labour tory libertarian socialist marxist labrador")
HAS_PET = word_set(
    """
    has_dog has_cat has_puppy has_kitten has_horse has_pony has_parrot has_rabbit has_hamster has_tortoise has_turtle
    """
)
TITLES = word_set("dr mr mrs ms miss prof professor father sister rabbi")
NOT_FAVOURITES = word_set("part thing things one ones bit time memory moment")
#: Things that may be liked in general with "the": "the sea".
KNOWN_BY_ALL = word_set(
    """
    sea ocean beach seaside coast mountain mountains outdoors theatre theater opera cinema countryside country
    forest woods rain snow sun sunshine wind cold heat summer winter spring autumn city internet gym desert jungle
    lake piano violin guitar cello drums saxophone accordion flute trumpet harp organ clarinet banjo night stars
    viola ukulele bass bagpipes recorder oboe bassoon tuba trombone mandolin fiddle harmonica lottery
    moon circus dentist police army church radio news telly commute tube bus metro dark
    """
)
LY_NOUNS = word_set(
    """
    family italy butterfly jelly lily fly rely monopoly sicily belly holly july assembly supply anomaly
    """
)
NOT_HOMES = word_set(
    """
    linux windows mac macos python rust java go android iphone ios aws azure gcp github gitlab kubernetes docker
    slack notion teams sales marketing hr finance support engineering product legal operations middle narnia
    hogwarts
    """
)
#: Things for which "is at" or "is in" states no place: events, texts, problems.
NOT_PLACED = word_set(
    """
    meeting train bus flight problem issue answer bug error key keys deadline exam test game match concert party
    call appointment interview manual question clue mistake typo story film movie book show ball devil proof news
    car
    """
)
NOT_PLACES_OF_THINGS = word_set("line chapter platform page section figure part step row column version english")
