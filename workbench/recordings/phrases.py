"""Words and sentence patterns from which `generate.py` builds conversations, one `Lexicon` per language.

In: nothing. Out: values. Slots in braces are filled from a `generate.Case`. Prose is put together from three
parts that fit in any combination, so that thousands of sentences differ. Written for this project.
"""

from __future__ import annotations

from dataclasses import dataclass


def _words(text: str) -> tuple[str, ...]:
    """The parts of a text between bars."""
    return tuple(part.strip() for part in text.replace("\n", " ").split("|"))


def _lines(text: str) -> tuple[str, ...]:
    """The lines of a text."""
    return tuple(line.strip() for line in text.strip().splitlines())


@dataclass(frozen=True, slots=True)
class Prose:
    """Sentences without facts: any beginning, any middle, any end."""

    beginnings: tuple[str, ...]
    middles: tuple[str, ...]
    ends: tuple[str, ...]
    joint: str = ""
    """Between beginning and middle."""
    tail: str = ""
    """Between middle and end."""


@dataclass(frozen=True, slots=True)
class Lexicon:
    """What one language needs to talk about orders, repairs and dates."""

    system: str
    goods: tuple[str, ...]
    names: tuple[str, ...]
    places: tuple[str, ...]
    states: tuple[str, ...]
    openings: tuple[str, ...]
    """A user tells of a new case."""
    questions: tuple[str, ...]
    """A user asks about the case just spoken of."""
    recalls: tuple[str, ...]
    """A user asks about a case of long ago, naming thing and day only."""
    decisions: tuple[str, ...]
    """The assistant settles a case."""
    answers: tuple[str, ...]
    """The assistant answers and repeats facts."""
    user_prose: Prose
    staff_prose: Prose
    has_cents: bool
    gap: str
    """What stands between two sentences."""


ZH = Lexicon(
    system="你是一家综合商城的客服助手。先用工具核实，再回答；单号、金额和日期必须与记录一致。",
    goods=_words("""空气净化器|扫地机器人|电压力锅|蓝牙音箱|机械键盘|儿童自行车|登山背包|护眼台灯|电动牙刷|咖啡研磨机|折叠书桌|羽绒睡袋
        |便携打印机|洗地机|智能门锁|恒温热水壶|猫用饮水机|露营帐篷|加湿器|曲面显示器|手持云台|移动硬盘|烘干机|行车记录仪|料理机|筋膜枪
        |人体工学椅|电子阅读器|净水滤芯|浴室暖风机|投影幕布|电热毯|车载冰箱|燃气灶|吸顶灯|婴儿推车"""),
    names=_words(
        "周屿|沈若溪|贺明|陆青禾|邱树|唐一帆|许念|高远山|柳絮|方知行|袁小满|苏木|乔楚|温故|简宁|黎川|汪洋|谭雪|梅林|罗晋"
    ),
    places=_words("""松江仓|望城分拨点|龙泉驿站|滨江营业部|金水服务网点|南沙前置仓|浑南中转场|雁塔自提柜|海沧分拣中心|青山湖门店|吴中维修站
        |武侯体验店|江宁退货仓|历下服务台"""),
    states=_words("已受理|检测中|待取件|已出库|排队中|已完成|待补充材料|转交二线"),
    openings=_lines("""
        {goods}出问题了，单号{id}，{bought}买的，当时付了{amount}元。
        您好，我在你们这里买的{goods}，订单{id}，到现在还停在路上没动。
        想退掉{goods}，{id}这一单，实付{amount}元，能退多少？
        约好上门看{goods}的，一直没人来，预约就写在{id}下面。
        {goods}屏幕上一直显示{code}，单号是{id}，麻烦看一下是什么意思。
        {bought}下的单，{goods}，编号{id}，收件人写错了，怎么改？
        {id}，{goods}，到手就少一个零件，{amount}元不算便宜吧。
    """),
    questions=_lines("""
        那最晚什么时候能有结果？
        要不要我自己送过去？送到哪儿？
        刚才说的金额是{amount}元，没错吧？
        负责这件事的是谁，有名字吗？
        到期还没好，可以直接换新的吗？
        {code}会不会再出现？
        还需要我补什么材料？
        处理完会有人通知我，还是我自己来查？
    """),
    recalls=_lines("""
        对了，{bought}那个{goods}的事，后来定的是多少钱来着？
        还记得{bought}买的{goods}吗？单号我找不到了。
        {goods}的那个约定，就是{bought}那单，是哪天截止？
        我要跟家里人交代一下{goods}的结果，{bought}买的，你帮我复述一遍。
        {bought}的{goods}后来放在哪个点？谁经手的？
    """),
    decisions=_lines("""
        已经核实，{id}由{name}跟进，同意补{amount}元，{date}前到账。
        这单{id}可以处理：先送到{place}检测，费用{amount}元由我们承担，{date}之前给您答复。
        查到了，{code}属于质量问题，{goods}给您换新，{date}从{place}发出，换货仍用单号{id}。
        金额核对为{amount}元，按{id}原路退回，经手人{name}，最晚{date}。
        {id}转给{name}了，他在{place}，{date}之前一定有结论，垫付的{amount}元先记着。
    """),
    answers=_lines("""
        是的，{id}这一单定的是{amount}元，截止{date}，经手人是{name}。
        记录里写得很清楚：{goods}在{place}，单号{id}，{date}之前有效。
        没有变，仍然是{amount}元，{name}在{place}处理，单号{id}。
        {code}那次已经登记在{id}下面，如果再出现，直接报这个号就行，期限到{date}。
        {name}那边回复了，{id}按{amount}元办，东西留在{place}。
    """),
    user_prose=Prose(
        _words("""昨天晚上|早上出门前|刚才断电以后|照着说明书弄的时候|送货的人走了之后|我妈在家用的时候|换了插座再试|搬到阳台以后|第三次开机时
            |周末朋友来做客那会儿|放了一个礼拜没动|按客服教的步骤"""),
        _words("""它自己停了|底座开始晃|盖子怎么也合不上|屏幕闪了几下就黑了|有一股焦味|声音比隔壁装修还大|指示灯一直是红的|水从接缝渗出来
            |手机上显示离线|温度怎么调都不变|遥控器完全没反应|卡在中间不动了"""),
        _words("""，视频我都拍下来了。|，害得我又重新来一遍。|，孩子都被吵醒了。|，我就没敢再用。|，这应该不算我弄坏的吧。|，邻居也听见了。
            |，说明书里一个字都没提。|，跟页面宣传的差太远。|，只好先拿纸箱垫着。|，白天上班又没法等师傅。|，想问问是不是通病。|，麻烦你们认真看一下。"""),
        joint="，",
    ),
    staff_prose=Prose(
        _words(
            "仓库那边|检测的同事|承运商刚刚|技术部门|门店店长|售后主管|备件管理员|维修站|值班经理|配送站|供应商|财务那边"
        ),
        _words("""已经把东西单独放好|判断不是使用造成的|会优先安排这一单|承诺不再改时间|建议先不要拆机|说明天上午能给准信|说只差一个配件没到
            |把责任认下来了|同意不收上门费|找到了当时的签收底单|要求附上清晰的照片|确认同批次都没问题"""),
        _words("""，您不用再跑一趟。|，后面有变化我会先告诉您。|，备注也写好了。|，所以运费由我们承担。|，请把充电线一起放进去。|，发票暂时不用动。
            |，周末可能会慢半天。|，这一点您可以放心。|，电话打不通的话会发短信。|，旧的那台先别扔。|，前面的记录不用再重复讲。|，有问题直接报单号就行。"""),
    ),
    has_cents=True,
    gap="",
)

EN = Lexicon(
    system="You are the service assistant of a small repair and rental company. Check with a tool before you "
    "answer, and repeat order ids, amounts and dates exactly.",
    goods=_words("""pressure washer|cargo bike|espresso machine|dehumidifier|trail tent|standing desk|hedge trimmer|film projector
        |sewing machine|ice maker|bench grinder|garden shredder|baby carriage|tablet stand|floor sander|amplifier|weather station
        |sleeping mat|label printer|tile cutter|camera gimbal|electric piano|bread oven|leaf blower|wall heater|water softener
        |ladder|air compressor|roof box|telescope|cool box|paper trimmer|kiln|outboard motor"""),
    names=_words("""Ines Marlow|Tobias Reed|Hana Petrov|Callum Ashby|Priya Nair|Jonas Weir|Maeve Dunne|Oskar Lind|Rosa Tennant
        |Felix Hargrave|Amara Boyd|Stellan Craig|Wanda Eskell|Idris Moor"""),
    places=_words("""the Harbour Road depot|counter 4|the Millgate workshop|the north yard|the returns desk|bay 12|the parts store
        |the Fenwick branch|the night locker|the service van|the Quarry Lane store"""),
    states=_words(
        "accepted|in inspection|ready for pickup|shipped|queued|closed|waiting for papers|passed to second line"
    ),
    openings=_lines("""
        My {goods} has failed, order {id}, bought on {bought}, I paid {amount}.
        Hello, the {goods} from order {id} is still on its way and nobody tells me why.
        I want to give the {goods} back, that is {id}, what do I get of the {amount}?
        Someone was to look at the {goods}, nobody came, the booking is under {id}.
        The display of the {goods} says {code}, the order is {id}, what does that mean?
        I ordered the {goods} on {bought}, number {id}, and the receiver's name is wrong.
        {id}, {goods}, one part missing out of the box, and {amount} isn't exactly cheap.
    """),
    questions=_lines("""
        When will I know at the latest?
        Shall I bring it myself, and where to?
        The amount was {amount}, am I right?
        Who looks after this on your side?
        If it isn't ready by then, do I get a new one?
        Can {code} come back?
        Do you need any more papers from me?
    """),
    recalls=_lines("""
        By the way, the {goods} of {bought}, what did we settle in the end?
        I can't find the number of the {goods} I bought on {bought}, do you have it?
        Until which day did the promise about the {goods} of {bought} hold?
        Please sum up the {goods} business of {bought}, I have to explain it at home.
        Where was the {goods} of {bought} left, and with whom?
    """),
    decisions=_lines("""
        I checked: {name} follows up {id}, we agree to {amount}, paid by {date}.
        We can do this for {id}: inspection at {place}, the cost of {amount} is ours, answer by {date}.
        {code} is a fault of the product, so the {goods} is replaced; it leaves {place} on {date} and keeps the number {id}.
        The amount is {amount}, refunded under {id} by {name}, on {date} at the latest.
        {id} went to {name} at {place}; there will be a result by {date}, and the {amount} you laid out stay noted.
    """),
    answers=_lines("""
        Yes, {id} was settled at {amount}, valid until {date}, handled by {name}.
        The file says: {goods} at {place}, order {id}, good until {date}.
        Nothing has changed, it is still {amount}, and {name} works on {id} at {place}.
        {code} is noted under {id}; if it comes back before {date}, give that number.
        {name} answered: {id} goes through at {amount}, and the thing stays at {place}.
    """),
    user_prose=Prose(
        _words("""Last night|Just before breakfast|After the power cut|While I followed the leaflet|As soon as the driver had gone
            |On the third attempt|With another socket|After a week in the cellar|When my sister tried it|In the middle of the job
            |Once it had cooled down|On the balcony"""),
        _words("""it stopped by itself|the lid would not close|the screen flickered and went dark|there was a smell of hot dust
            |the lamp stayed red|water came out at the seam|the handle came off in my hand|it made a noise like gravel
            |the app showed nothing at all|the motor ran backwards|two screws fell out|it tripped the fuse"""),
        _words(""", and I have it on video.|, so I had to start all over again.|, which woke the whole house.|, and I haven't dared to use it since.
            |, though I had done nothing unusual.|, and my neighbour heard it too.|, of which the leaflet says not a word.
            |, quite unlike what the page promised.|, so it now stands on a brick.|, and I work shifts, so calls are difficult.
            |, and I would like to know whether that is common.|, which can't be right."""),
        joint=" ",
    ),
    staff_prose=Prose(
        _words("""The workshop|Our inspector|The carrier|The branch manager|The parts desk|The night team|My colleague in the store
            |The supplier|The driver|Second line|The accounts desk|The person on duty"""),
        _words("""has put it on a shelf of its own|saw no sign of misuse|will take this one first|promises not to move the day again
            |asks you not to open the housing|gives a firm answer tomorrow morning|only waits for one part|accepts the blame
            |waives the fee for the visit|found the delivery slip|needs one sharp photograph|checked the rest of the batch"""),
        _words(""", so you need not come twice.|, and I will tell you first if that changes.|, and the note is in the file.
            |, which means that carriage is ours.|, so please add the cable to the parcel.|, and the invoice can stay as it is.
            |, though weekends may add half a day.|, you can rely on that.|, and a text follows if you can't be reached.
            |, so keep the old one for now.|, and you won't have to tell the story again.|, just give the number when you call."""),
        joint=" ",
    ),
    has_cents=True,
    gap=" ",
)

JA = Lexicon(
    system="あなたは生活用品店のサポート担当です。回答の前に必ずツールで確認し、受付番号、金額、日付は記録どおりに伝えてください。",
    goods=_words("""食器洗い機|電気毛布|除湿機|炊飯器|空気清浄機|折りたたみ自転車|電動ドライバー|加湿器|コーヒーメーカー|ロボット掃除機|望遠鏡
        |デスクライト|キャンプ用テント|体組成計|電子ピアノ|ミシン|浄水ポット|衣類乾燥機|プロジェクター|ベビーカー|ヘッドホン|ホットプレート
        |ラベルライター|サーキュレーター|電気ケトル|高圧洗浄機|ワインセラー|布団乾燥機"""),
    names=_words("藤代|三浦|小野寺|柏木|長谷部|水沢|北条|瀬戸|早見|岩切|真壁|深町|椎名|榎本"),
    places=_words(
        "東雲倉庫|北口サービス窓口|港南修理センター|第二配送所|緑町店|返品受付カウンター|夜間ロッカー|西部営業所|丘の上店|部品センター"
    ),
    states=_words("受付済み|点検中|引き取り待ち|発送済み|順番待ち|完了|書類待ち|専門部署へ引き継ぎ"),
    openings=_lines("""
        {goods}が動かなくなりました。受付番号は{id}、{bought}に買い、支払いは{amount}円です。
        {id}で注文した{goods}が、ずっと途中で止まっているようです。
        {goods}を返品したいのですが、{id}の{amount}円はいくら戻りますか。
        {goods}の画面に{code}と出ます。番号は{id}です。
        点検の約束でしたが、どなたも来ませんでした。{goods}、{id}の件です。
        {bought}に注文した{goods}、番号{id}ですが、受取人の名前が違っています。
    """),
    questions=_lines("""
        いつ頃までに分かりますか。
        持ち込んだほうが早いでしょうか。場所も教えてください。
        金額は{amount}円で間違いないですね。
        担当の方のお名前を教えてください。
        期限を過ぎたら交換してもらえますか。
        {code}はまた出ることがありますか。
        ほかに必要な書類はありますか。
    """),
    recalls=_lines("""
        そういえば、{bought}に買った{goods}の件はいくらで決まりましたか。
        {bought}の{goods}の受付番号を控え忘れました。教えてください。
        {goods}の約束の期限はいつまででしたか。{bought}に買ったものです。
        {bought}の{goods}の件を家族に説明したいので、もう一度まとめてください。
        {bought}に買った{goods}はどこに預けたままでしたか。
    """),
    decisions=_lines("""
        確認しました。{id}は{name}が担当し、{amount}円を{date}までにお支払いします。
        {id}は{place}で点検し、費用の{amount}円は当店が負担します。{date}までにご連絡します。
        {code}は製品側の不具合ですので、{goods}を交換します。{date}に{place}から発送、番号は{id}のままです。
        {id}は{place}の{name}に引き継ぎました。{date}までに結論を出し、{amount}円は記録に残します。
    """),
    answers=_lines("""
        はい、{id}は{amount}円、期限は{date}、担当は{name}です。
        記録では、{goods}は{place}にあり、番号は{id}、{date}まで有効です。
        変更はありません。{amount}円のままで、{name}が{place}で{id}に対応しています。
        {code}の件は{id}に登録済みです。{date}までに再び出た場合はこの番号をお伝えください。
    """),
    user_prose=Prose(
        _words("""昨晩|今朝出かける前に|停電のあと|説明書どおりに進めたら|配達の方が帰ったあと|三回目に試したとき|別のコンセントに替えたら
            |一週間しまっておいたら|母が使っていたら|作業の途中で"""),
        _words("""急に止まってしまい|ふたが閉まらなくなり|画面が消えてしまい|焦げたようなにおいがして|赤いランプが消えず|継ぎ目から水が漏れて
            |取っ手が外れてしまい|砂をかむような音がして|アプリに何も表示されず|ねじが二本落ちてきて"""),
        _words("""、動画に撮ってあります。|、最初からやり直しました。|、家族を起こしてしまいました。|、それからは使っていません。
            |、特別なことはしていません。|、隣の方にも聞こえたそうです。|、説明書には何も書いてありません。|、広告の印象とはだいぶ違います。
            |、今は箱の上に置いています。|、夕方以降でないと電話に出られません。"""),
        joint="、",
    ),
    staff_prose=Prose(
        _words(
            "修理担当が|点検の者が|配送会社が|店長が|部品窓口が|夜間の係が|倉庫の担当者が|メーカーが|運転手が|専門部署が"
        ),
        _words("""専用の棚に保管しており|使い方の問題ではないと判断し|この件を先に進めており|日程は変えないと約束し|分解しないようお願いしており
            |明日の午前に回答するとのことで|部品を一つ待っている状態で|責任を認めており|出張費は不要とし|受領の控えを見つけており"""),
        _words("""、再度お越しいただく必要はありません。|、変更があれば先にお伝えします。|、備考にも記録しました。|、送料は当店が負担します。
            |、コードも一緒に入れてください。|、請求書はそのままで結構です。|、週末は半日ほど遅れることがあります。|、どうぞご安心ください。
            |、不在の場合は文字でお知らせします。|、古いものはまだ捨てないでください。"""),
    ),
    has_cents=False,
    gap="",
)

KO = Lexicon(
    system="당신은 생활용품 매장의 상담 도우미입니다. 답하기 전에 도구로 확인하고, 접수번호와 금액과 날짜는 기록 그대로 전달하세요.",
    goods=_words("""식기세척기|전기장판|제습기|압력밥솥|공기청정기|접이식 자전거|전동 드라이버|가습기|커피머신|로봇청소기|천체망원경|책상 조명
        |캠핑 텐트|체중계|전자피아노|재봉틀|정수기|의류건조기|빔프로젝터|유모차|헤드폰|전기그릴|라벨프린터|서큘레이터|전기주전자|고압세척기"""),
    names=_words("한서윤|도현우|류지안|마석진|표은채|남궁현|설아린|봉태규|진하율|탁민호|여운재|길소담"),
    places=_words(
        "동부 물류센터|북문 서비스 창구|항만 수리센터|제2 배송지점|초록마을점|반품 접수대|야간 보관함|서쪽 영업소|언덕길 매장|부품 창고"
    ),
    states=_words("접수됨|점검 중|수거 대기|출고됨|대기 중|완료|서류 대기|전문 부서 이관"),
    openings=_lines("""
        {goods} 고장 문의입니다. 접수번호 {id}, {bought}에 샀고 결제 금액은 {amount}원입니다.
        {id} 번호로 주문한 {goods}, 계속 중간에 멈춰 있습니다.
        {goods} 반품하고 싶습니다. {id} 건 {amount}원 중에서 얼마를 돌려받나요?
        {goods} 화면에 {code} 표시가 뜹니다. 번호는 {id}입니다.
        점검을 오신다고 했는데 아무도 오지 않았습니다. {goods}, {id} 건입니다.
        {bought}에 주문한 {goods}, 번호 {id} 건인데 받는 사람 이름이 틀렸습니다.
    """),
    questions=_lines("""
        늦어도 언제까지 알 수 있을까요?
        직접 가져가는 편이 빠를까요? 장소도 알려 주세요.
        금액은 {amount}원이 맞지요?
        담당하시는 분 성함이 어떻게 되나요?
        기한이 지나면 교환해 주시나요?
        {code} 표시가 또 나올 수 있나요?
        더 필요한 서류가 있나요?
    """),
    recalls=_lines("""
        참, {bought}에 산 {goods} 건은 얼마로 정했었죠?
        {bought}에 산 {goods} 접수번호를 적어 두지 못했습니다. 알려 주세요.
        {bought} 구매한 {goods} 약속은 언제까지였나요?
        가족에게 설명해야 해서 {bought} {goods} 건을 다시 정리해 주세요.
        {bought}에 산 {goods} 지금 어디에 맡겨져 있나요?
    """),
    decisions=_lines("""
        확인했습니다. {id} 건은 {name} 담당이고, {amount}원을 {date}까지 지급합니다.
        {id} 건은 {place}에서 점검하고 비용 {amount}원은 저희가 부담합니다. {date}까지 연락드리겠습니다.
        {code} 표시는 제품 문제이므로 {goods} 교환해 드립니다. {date}에 {place}에서 출고하며 번호는 {id} 그대로입니다.
        {id} 건은 {place} {name} 담당자에게 넘겼습니다. {date}까지 결론을 내고 {amount}원은 기록해 두겠습니다.
    """),
    answers=_lines("""
        네, {id} 건은 {amount}원, 기한은 {date}, 담당자는 {name}입니다.
        기록에는 {goods} 위치가 {place}, 번호는 {id}, {date}까지 유효하다고 되어 있습니다.
        변동 없습니다. 그대로 {amount}원이고 {name} 담당자가 {place}에서 {id} 건을 처리하고 있습니다.
        {code} 건은 {id} 번호로 등록되어 있습니다. {date} 전에 다시 나오면 이 번호를 말씀해 주세요.
    """),
    user_prose=Prose(
        _words("""어젯밤에|오늘 아침 나가기 전에|정전된 뒤로|설명서대로 하는데|배송 기사님이 가신 뒤|세 번째로 켰을 때|다른 콘센트에 꽂았더니
            |일주일 넣어 두었더니|어머니가 쓰시는데|한창 쓰는 중에"""),
        _words("""갑자기 멈춰서|뚜껑이 닫히지 않아서|화면이 꺼져 버려서|타는 냄새가 나서|빨간 불이 계속 켜져 있어서|이음새에서 물이 새서
            |손잡이가 빠져서|모래 갈리는 소리가 나서|앱에 아무것도 안 떠서|나사가 두 개 떨어져서"""),
        _words("""영상으로 찍어 두었습니다.|처음부터 다시 했습니다.|식구들이 다 깼습니다.|그 뒤로는 쓰지 못하고 있습니다.|따로 건드린 것은 없습니다.
            |옆집에서도 들었다고 합니다.|설명서를 봐도 내용이 없습니다.|광고와 너무 다르다고 느꼈습니다.|지금은 상자 위에 올려 두었습니다.
            |저녁 이후에만 통화가 됩니다."""),
        joint=" ",
        tail=" ",
    ),
    staff_prose=Prose(
        _words(
            "수리 담당자가|점검 직원이|택배사에서|점장님이|부품 창구에서|야간 근무자가|창고 직원이|제조사에서|배송 기사가|전문 부서에서"
        ),
        _words("""따로 보관하고 있으니|사용상의 문제가 아니라고 판단했으니|이 건을 먼저 처리하기로 했으니|날짜를 바꾸지 않기로 했으니
            |분해하지 말아 달라고 했으니|내일 오전에 답을 주기로 했으니|부품 하나만 기다리고 있으니|책임을 인정했으니
            |출장비를 받지 않기로 했으니|인수증을 찾았으니"""),
        _words("""다시 오실 필요는 없습니다.|변동이 생기면 먼저 알려 드리겠습니다.|메모에도 남겨 두었습니다.|운송비는 저희가 부담합니다.
            |전선도 함께 넣어 주세요.|계산서는 그대로 두셔도 됩니다.|주말에는 반나절쯤 늦어질 수 있습니다.|안심하셔도 됩니다.
            |부재중이면 문자로 알려 드립니다.|예전 제품은 아직 버리지 마세요."""),
        joint=" ",
        tail=" ",
    ),
    has_cents=False,
    gap=" ",
)

LEXICONS = {"zh": ZH, "en": EN, "ja": JA, "ko": KO}
